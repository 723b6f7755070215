"""Durations and sizes as people write them, in specs, on the command line and in messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF = "off"

DURATION_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h|d)"
SIZE_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)"

LONGEST, LARGEST = "9999999d", "999999TB"
"""The longest duration and the largest size: each fits into every field, and into Slurm's."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1} | {
    f"{prefix}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def parse_duration(text: str) -> float | None:
    """Seconds, or None if `text` is not a duration. The caller handles `off`."""
    return _parse(text, DURATION_PATTERN, _SECONDS)


def parse_size(text: str) -> int | None:
    """Bytes (1 KB is 1000 bytes, 1 KiB is 1024), or None if `text` is not a size."""
    size = _parse(text, SIZE_PATTERN, _BYTES)
    return None if size is None else int(size)


def _parse(text: str, pattern: str, units: Mapping[str, float]) -> float | None:
    match = re.fullmatch(pattern, text)
    if not match:
        return None
    unit = match[2]
    return float(text.removesuffix(unit)) * units[unit]


def format_bytes(number: float) -> str:
    """`670 MB`; units of 1000."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
