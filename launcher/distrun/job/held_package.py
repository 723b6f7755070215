"""The package as it was when a job began: what is imported or read later comes from memory.

Its files may be replaced while a job runs, by an upgrade or a change of branch, or removed. What a
job's processes import late would then not fit what they have imported. So its launch and its
supervisor read all that they have not imported yet when the job is a second old, or when the launch
detaches: a short job does not pay for it. The agent of this machine does when it starts, and so do
commands that follow a job. Agents on other hosts have all their modules in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import (
    MAGIC_NUMBER,
    cache_from_source,
    source_from_cache,
    spec_from_file_location,
)
from types import ModuleType
from typing import Any

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SENT = os.path.join(FOLDER, "agent", "")
"""The modules whose text hosts are sent."""
_HEADER_BYTES = 16
AFTER_SECONDS = 1.0
"""The age of a job at which its launch and its supervisor hold the package."""

_files: dict[str, bytes] = {}
_states: dict[str, tuple[int, int]] = {}
"""Of each file: when it was changed (ns), and its size."""


def hold(folder: str = "") -> None:
    """Read what this process may still need of the package: all that it has not imported yet.

    It takes 30 ms, and does nothing the second time. What cannot be read, as with too few
    descriptors, is not held. `folder`: only its modules, and not the text that hosts are sent.
    """
    if _states:
        return
    modules = list(sys.modules.items())
    loaded = {
        getattr(each, "__file__", None)
        for name, each in modules
        if name.partition(".")[0] == "distrun"
    }
    with suppress(OSError):
        _read_folder(os.path.join(FOLDER, folder), loaded, with_text=not folder)
    sys.meta_path.insert(0, _Finder)


def read(path: str) -> bytes:
    """Return the content of a file of the package. Raises OSError: it cannot be read."""
    if path in _files:
        return _files[path]
    with open(path, "rb") as file:
        return file.read()


def state(path: str) -> tuple[int, int]:
    """Return when a file was changed (ns), and its size. Raises OSError: there is none."""
    if path in _states:
        return _states[path]
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


def exists(path: str) -> bool:
    return path in _states or os.path.exists(path)


def _read_folder(folder: str, loaded: set[str | None], *, with_text: bool) -> None:
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name == "__pycache__":
                continue
            if each.is_dir():
                _read_folder(each.path, loaded, with_text=with_text)
            else:
                with suppress(FileNotFoundError):  # it has just been removed
                    found = each.stat()
                    if each.path not in loaded:
                        _read_file(each.path, found)
                    if with_text and each.path.startswith(_SENT):
                        _files[each.path] = read(each.path)
                    _states[each.path] = found.st_mtime_ns, found.st_size


def _read_file(path: str, found: os.stat_result) -> None:
    if path.endswith(".py"):
        compiled = cache_from_source(path)
        try:
            _files[compiled] = block = read(compiled)
        except OSError:
            block = b""
        if _is_of(block, found):
            return
    _files[path] = read(path)


def _is_of(block: bytes, found: os.stat_result) -> bool:
    """Whether a compiled module is that of its source, as Python decides it (PEP 552)."""
    expected = (0, int(found.st_mtime), found.st_size)
    header = b"".join((each & 0xFFFFFFFF).to_bytes(4, "little") for each in expected)
    return block[:_HEADER_BYTES] == MAGIC_NUMBER + header


class _Loader(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        if path not in _files:
            raise FileNotFoundError(path)
        return _files[path]

    def path_stats(self, path: str) -> dict[str, Any]:
        changed, size = _states[path]
        return {"mtime": changed // 1_000_000_000, "size": size}

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Keep a compiled module for later processes, unless its source is another one now."""
        source = source_from_cache(path)
        with suppress(OSError):
            found = os.stat(source)
            if (found.st_mtime_ns, found.st_size) == _states[source]:
                super().set_data(path, data, _mode=_mode)


class _Finder:
    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - Python's signature
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> ModuleSpec | None:
        top, *rest = name.split(".")
        if top != "distrun" or not rest:
            return None
        base = os.path.join(FOLDER, *rest)
        inside = os.path.join(base, "__init__.py")
        if inside in _states:
            loader = _Loader(name, inside)
            return spec_from_file_location(
                name, inside, loader=loader, submodule_search_locations=[base]
            )
        file = f"{base}.py"
        if file not in _states:
            return None
        return spec_from_file_location(name, file, loader=_Loader(name, file))
