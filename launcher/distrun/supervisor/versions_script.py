"""A program that prints the versions that an interpreter has, for the preflight.

Agents run it, with any version of Python, without importing TensorFlow (2 s, 670 MB). Its arguments
are the script, or an empty word, and the names of modules to look for.

Other users may have written a `json.py` into the working folder. So the program imports only from
the standard library; where the task's program looks for modules, it only searches for them.
"""

VERSIONS_SCRIPT = """\
import os, sys
path = sys.path[:]
if path[0] == "":
    del path[0]
stdlib = os.path.dirname(os.__file__)
sys.path[:] = [each for each in path if each.startswith(stdlib) or each.endswith("/lib-dynload")]
import email.parser, json, re
from importlib.util import find_spec
names = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm",
         "tensorflow-cpu-aws", "tensorflow-aarch64", "tensorflow-macos", "tf-nightly",
         "tf-nightly-cpu", "intel-tensorflow")
path.insert(0, os.path.dirname(sys.argv[1]))
found = ""
try:
    from importlib import metadata
    every = (each for name in names for each in metadata.distributions(name=name, path=path))
    found = next((each.version for each in every), "")
except ImportError:
    pass
sys.path[:] = path
if not found:
    spec = find_spec("tensorflow")
    if spec is not None and spec.origin is not None:
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
