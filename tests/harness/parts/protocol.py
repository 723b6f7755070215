from distrun.agent.protocol import Cause, Code, FollowLogs, Hello, HoldPorts, INDEX_RECORD, LogData
from distrun.agent.protocol import Message, Order, PortsHeld, PortsRefused, Progress, Report
from distrun.agent.protocol import file_messages, heartbeat_interval, probe_messages, stack_messages
from distrun.agent.protocol.causes import CauseError, Subject
from distrun.agent.protocol.file_messages import FileDataReceived, FileRead, FileReadEnd
from distrun.agent.protocol.file_messages import FilesWritten, ReadFile, TransferProgress
from distrun.agent.protocol.probe_messages import Inspect, Program
from distrun.agent.protocol.stack_messages import ProgramData, ProgramRequested, StacksDumped
