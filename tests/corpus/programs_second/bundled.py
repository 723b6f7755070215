"""The bundled job, in trouble once its first checkpoint is there."""

import importlib.util
import pathlib
import runpy
import sys

import trouble

package = pathlib.Path(importlib.util.find_spec("distrun").origin)
job = package.parents[2] / "jobs" / "mnist"
trouble.here("begin")
trouble.later("saved/checkpoint")
sys.path.insert(0, str(job))
sys.argv[0] = "main.py"
runpy.run_path(str(job / "main.py"), run_name="__main__")
