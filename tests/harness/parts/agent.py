from distrun.agent import agent_dir, orphans, protocol, reattach, written_files
from distrun.agent.agent import write_unsent
from distrun.agent.files import blob_cache
from distrun.agent.files.blob_cache import BlobCache
from distrun.agent.files.receiver import FileReceiver
from distrun.agent.link import Lease
from distrun.agent.logs.streamer import LogStreamer
from distrun.agent.logs.task_logs import TaskLogs, index_of
from distrun.agent.loop import Loop
from distrun.agent.main import connection_addresses
from distrun.agent.probe import dialer, inspection, marks
from distrun.agent.probe.inspection import inspect
from distrun.agent.probe.listener import Listener
from distrun.agent.probe.probe import Probe
from distrun.agent.reattach import ReattachListener, receive_descriptors
from distrun.agent.tasks import profile, program, stacks, task
from distrun.agent.tasks.notify import NotifySocket
from distrun.agent.tasks.ports import PortHolder
from distrun.agent.tasks.program import write_marker
from distrun.agent.tasks.task import owner_of
from distrun.agent.tasks.usage import UsageSampler
