"""How lines look that are not the program's own: TensorFlow's log, Python's on its way out."""

from __future__ import annotations

import re

LOGGED = re.compile(r"[IWEF]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] ")
"""How a line of TensorFlow's own log begins: such may stand in the midst of a traceback."""
UNALARMING = re.compile(r"[IW]\d{4} \d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] ")
DEADLY = re.compile(r"F\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: F ")
NOISE = ("To enable the following instructions:", "WARNING: All log messages before absl::")
"""What TensorFlow prints in each start without a mark of its log."""
FATAL = "Fatal Python error: "
_FURTHER = re.compile(
    r"\s*$|\s+\[\[|RPC: /|:UNKNOWN:|/job:\w+/|Additional GRPC error|The tasks have crashed"
    r"|The error could be from a previous|This is usually caused by an earlier error"
)
"""How the second and later lines of TensorFlow's messages begin."""
ASIDE = re.compile(
    r"Exception ignored |Error in atexit\._run_exitfuncs:|Error in sys\.excepthook:"
    r"|Exception in thread |Process \S+:$"
)
"""What stands above a traceback that is not the main thread's."""
_LEAVING = re.compile(
    r"Original exception was:|\S+/resource_tracker\.py:\d+: UserWarning:|  warnings\.warn\("
)
ABORTS = ("Check failed", "terminate called", "pure virtual method", "what():", "Assertion `")


def is_abort(line: str) -> bool:
    """Whether native code says with it why it ends the process."""
    return DEADLY.match(line) is not None or any(each in line for each in ABORTS)


def is_by_the_way(line: str) -> bool:
    """Whether it may follow the last words of a program that has ended, of itself or by a fault."""
    return (
        LOGGED.match(line) is not None
        or line.startswith(NOISE)
        or _FURTHER.match(line) is not None
        or ASIDE.match(line) is not None
        or _LEAVING.match(line) is not None
        or is_abort(line)
    )
