"""Durations and sizes as people write them."""

from __future__ import annotations

import re

OFF = "off"

DURATION_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)"
SIZE_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)"

_DURATION = re.compile(DURATION_PATTERN)
_SIZE = re.compile(SIZE_PATTERN)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"B": 1} | {
    f"{prefix}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def duration(text: str) -> float | None:
    """Seconds, or None where `text` is no duration. `off` is the caller's to know."""
    match = _DURATION.fullmatch(text)
    if not match:
        return None
    unit = match[2]
    return float(text.removesuffix(unit)) * _SECONDS[unit]


def size(text: str) -> int | None:
    """Bytes (KB is 1000 of them, KiB 1024), or None where `text` is no size."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    unit = match[2]
    return int(float(text.removesuffix(unit)) * _BYTES[unit])
