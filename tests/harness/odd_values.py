"""Values that no field of a record or of a message is to have."""

import json
from collections.abc import Sequence
from typing import Any

DEEP, HUGE = "@deep", "@huge"
"""Stand for a list in 5,000 lists, and for a number of 5,000 digits."""
ODD: Sequence[Any] = (
    *(float("inf"), float("-inf"), float("nan"), -1, 0, 1, 2, 300, 1 << 31, 1 << 53, 1 << 64),
    *(10**400, 1e300, -1e300, 1e11, 0.5, True, False, None, DEEP, HUGE),
    *("", "x", "5", "worker:0", "evaluator:0", "worker:9", "a\nb", "\0", "\x05", "\ud800"),
    *("\udcff", "\x1b]52;c;eA==\x07", "\u202e", "\x9b31m", "x" * 5000, "../../../etc/passwd"),
    *("chief-0.log", "{}", "%s", "[red]"),
    *([], [[]], [None], {}, {"a": 1}, [1, "x"], [None] * 50),
    *({"code": "job_succeeded"}, {"code": "uncoded", "text": "a\nb\x1b[2J"}, {"code": []}),
    {"code": "ssh_timed_out", "commands": ["rm -rf ~"]},
)


def dumps(value: Any) -> bytes:
    """Encode a value as JSON, with what stands for others replaced."""
    text = json.dumps(value).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
    return text.replace(f'"{HUGE}"', "9" * 5000).encode("ascii")
