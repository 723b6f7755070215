"""The protocol that both ends of a link speak: its messages, and the causes in them.

These are plain values: importing this package does no I/O. Its modules :mod:`.channel` and
:mod:`.framing` (on a link with noise) carry them. The messages of the preflight
(:mod:`.probe_messages`) and of files (:mod:`.file_messages`) are separate modules, because a job on
one machine needs neither.
"""

# isort: skip_file

from distrun.agent.protocol.causes import Cause, Code, Subject
from distrun.agent.protocol.messages import (
    INDEX_RECORD, INDEX_SUFFIX, KILL_GRACE, LOG_OVERHEAD, PROTOCOL, UNSENT_REPORTS,
    Ack, AgentExiting, Configure, Detach, Fault,
    FollowLogs, Heartbeat, Hello, HoldPorts, JobEvent, LogData, LogEnded, LogReceived,
    CpuMeasured, MeasureCpu, Message, Notice, OpenJob, Order, PortsHeld,
    PortsRefused, Progress, ProgressIgnored, Reattach, Reattached, Refused, Report, Request,
    Shutdown, StartTask, StopJob, StopTask, TaskEnded, TaskExited, TaskListening,
    TaskNotStarted, TaskStarted,
    StacksTaken, TakeStacks, UsageSampled, Watch, WatchStarted, heartbeat_interval,
)  # fmt: skip
from distrun.agent.structs import StrEnum, Struct

__all__ = [
    "INDEX_RECORD",
    "INDEX_SUFFIX",
    "KILL_GRACE",
    "LOG_OVERHEAD",
    "PROTOCOL",
    "UNSENT_REPORTS",
    "Ack",
    "AgentExiting",
    "Cause",
    "Code",
    "Configure",
    "CpuMeasured",
    "Detach",
    "Fault",
    "FollowLogs",
    "Heartbeat",
    "Hello",
    "HoldPorts",
    "JobEvent",
    "LogData",
    "LogEnded",
    "LogReceived",
    "MeasureCpu",
    "Message",
    "Notice",
    "OpenJob",
    "Order",
    "PortsHeld",
    "PortsRefused",
    "Progress",
    "ProgressIgnored",
    "Reattach",
    "Reattached",
    "Refused",
    "Report",
    "Request",
    "Shutdown",
    "StacksTaken",
    "StartTask",
    "StopJob",
    "StopTask",
    "StrEnum",
    "Struct",
    "Subject",
    "TakeStacks",
    "TaskEnded",
    "TaskExited",
    "TaskListening",
    "TaskNotStarted",
    "TaskStarted",
    "UsageSampled",
    "Watch",
    "WatchStarted",
    "heartbeat_interval",
]  # fmt: skip
