"""Durations and sizes as people write them, in specs, on the command line and in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping

OFF = "off"

DURATION_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h|d)"
SIZE_PATTERN = r"[0-9]{1,9}(\.[0-9]{1,9})?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)"

LONGEST, LARGEST = "9999999d", "999999TB"
"""The longest duration and the largest size: each fits into every field, and into Slurm's."""

_UNIT = r"(ms|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?)"
_PART = rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)\s*{_UNIT}"
_CLOCK = r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-9]{2}):([0-9]{2})"
"""As Slurm writes a time."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1} | {
    f"{prefix}{infix}B": base**power
    for infix, base in (("", 1000), ("i", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def parse_duration(text: str) -> float | None:
    """Seconds, or None if `text` is not a duration. The caller handles `off`."""
    return _parse(text, DURATION_PATTERN, _SECONDS)


def meant_duration(text: str) -> str | None:
    """The duration that another spelling means, such as 1h30m, 2 hours or 12:00:00."""
    clock, text = re.fullmatch(_CLOCK, text), text.lower()
    if clock:
        parts = list(zip(clock.groups("0"), "dhms", strict=True))
    elif re.fullmatch(rf"(?:{_PART}\s*)+", text):
        parts = [(number, "ms" if unit == "ms" else unit[0])
                 for number, unit in re.findall(_PART, text)]  # fmt: skip
    else:
        return None
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    unit = next((each for each in "dhm" if seconds % _SECONDS[each] == 0), "s")
    return f"{seconds / _SECONDS[unit]:.15g}{unit}"


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
