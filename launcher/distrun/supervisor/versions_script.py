"""A program that prints the versions that an interpreter has, for the preflight.

Agents run it, with any version of Python, without importing TensorFlow (2 s, 670 MB). Its arguments
are the script, or an empty word, and the names of modules to look for.
"""

VERSIONS_SCRIPT = """\
import json, os, sys
from importlib.util import find_spec
names = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm",
         "tensorflow-cpu-aws", "tensorflow-aarch64", "tensorflow-macos", "tf-nightly",
         "tf-nightly-cpu", "intel-tensorflow")
if sys.argv[1]:
    sys.path[0] = os.path.dirname(sys.argv[1])
found = ""
try:
    from importlib import metadata
    for name in names:
        try:
            found = metadata.version(name)
            break
        except metadata.PackageNotFoundError:
            pass
except ImportError:
    pass
if not found:
    spec = find_spec("tensorflow")
    if spec is not None and spec.origin is not None:
        import re
        with open(spec.origin, encoding="utf-8", errors="replace") as file:
            literal = re.search(r"^__version__\\s*=\\s*['\\"]([^'\\"]+)", file.read(), re.M)
        found = literal.group(1) if literal else "unknown"
keras = find_spec("tf_keras") is not None
missing = []
for name in sys.argv[2:]:
    try:
        if find_spec(name) is None:
            missing.append(name)
    except Exception:  # a finder of the user's own may raise anything
        pass
versions = "%d.%d.%d" % sys.version_info[:3], found, keras, missing
print("\\ndistrun-versions:" + json.dumps(versions))
"""
