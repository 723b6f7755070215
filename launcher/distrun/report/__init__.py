"""The page of `distrun report`: what happened to a job, in one HTML file.

`distrun.report` is also a function, :func:`distrun.api.report`, and this package takes its place as
soon as it is imported. So it can be called, too.
"""

import sys
from types import ModuleType


class _Package(ModuleType):
    def __call__(self, **values: float) -> None:
        from distrun import api

        api.report(**values)


sys.modules[__name__].__class__ = _Package
