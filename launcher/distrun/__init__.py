"""distrun: launches multi-worker TensorFlow jobs. :mod:`distrun.api` has what programs import."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:  # as type checkers take it
    from distrun.api import *  # noqa: F403
else:
    import distrun

    class _Face(type(distrun)):
        """`distrun.job` and `distrun.report` stay functions when the packages are imported."""

        def __setattr__(self, name, value):
            if name not in ("job", "report"):
                super().__setattr__(name, value)

    distrun.__class__ = _Face

    def __getattr__(name):
        if name[0].isupper() or name in (
            *("__all__", "job", "jobs", "launch", "load", "report", "run"),
        ):
            import importlib

            return getattr(importlib.import_module("distrun.api"), name)
        raise AttributeError(f"module 'distrun' has no attribute {name!r}")

    def __dir__():
        return ["__version__", *__getattr__("__all__")]
