from distrun.supervisor import running_tasks, stack_collector, tensorboard
from distrun.supervisor.clients import Clients
from distrun.supervisor.cluster_check import ClusterCheck
from distrun.supervisor.file_fetch import Fetch, Fetched, File, KeptFetch, clean_patterns, place
from distrun.supervisor.job_hosts import JobHosts
from distrun.supervisor.line_search import LineSearch
from distrun.supervisor.log_tails import LogTails, TailedLog
from distrun.supervisor.probe import dialled_by
from distrun.supervisor.received_tree import ReceivedTree
from distrun.supervisor.round import Round, is_awaited
from distrun.supervisor.running_job import EventQueue
from distrun.supervisor.running_tasks import RunningTask
from distrun.supervisor.stack_collector import StackCollector
from distrun.supervisor.stall_detector import QUIET_SECONDS, SUSPECT_SECONDS, StallDetector
from distrun.supervisor.tensorboard import TensorBoard
