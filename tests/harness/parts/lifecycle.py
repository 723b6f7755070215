from distrun import lifecycle
from distrun.lifecycle import HostState, JOB, JobPhase, JobState, SIGKILL, STALL, SetTimer
from distrun.lifecycle import TaskPhase, TaskState, Used, may_recur, replay
from distrun.lifecycle.chunked_map import ChunkedMap
