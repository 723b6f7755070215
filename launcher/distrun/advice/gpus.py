"""The GPUs of a task while it was sampled, as nvidia-smi shows them."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from distrun.frozen import Frozen

if TYPE_CHECKING:
    from distrun.job.stacks import Recording

_MEBIBYTE = 1 << 20
_SLOWED = {
    0x02: "chosen clocks",
    0x04: "power cap",
    0x08: "hardware",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
}
"""What the bits of `clocks_throttle_reasons.active` mean: nvmlClocksThrottleReason* in nvml.h."""


class Gpu(Frozen, kw_only=True):
    """A GPU at the end of the samples. `slowed_by`: what lowers its clock. None: unknown."""

    index: str
    busy_percent: float | None
    used_bytes: int | None
    total_bytes: int | None
    clock_mhz: float | None
    highest_clock_mhz: float | None
    celsius: float | None
    slowed_by: tuple[str, ...]


def read(recording: Recording) -> list[Gpu]:
    """Return the GPUs that a process may use.

    Their values are those of `nvidia-smi --query-gpu`: index, uuid, utilization.gpu, memory.used,
    memory.total, clocks.sm, clocks.max.sm, temperature.gpu, clocks_throttle_reasons.active.
    """
    found = []
    for index, _, busy, used, total, clock, highest, celsius, reasons in recording.gpus:
        memory = [None if n is None else int(n * _MEBIBYTE) for n in map(_number, (used, total))]
        bits = int(_number(reasons) or 0)
        slowed_by = (word for bit, word in _SLOWED.items() if bits & bit)
        found.append(
            Gpu(
                index=index,
                busy_percent=_number(busy),
                used_bytes=memory[0],
                total_bytes=memory[1],
                clock_mhz=_number(clock),
                highest_clock_mhz=_number(highest),
                celsius=_number(celsius),
                slowed_by=tuple(dict.fromkeys(slowed_by)),
            )
        )
    return found


def _number(text: str) -> float | None:
    """Return a number, also one in base 16; None for `[N/A]`."""
    with contextlib.suppress(ValueError):
        number = float(int(text, 16)) if text.startswith("0x") else float(text)
        return number if math.isfinite(number) and 0 <= number < 1 << 32 else None
    return None
