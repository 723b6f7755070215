from distrun.supervisor.hosts import addresses, bootstrap, host, local
from distrun.supervisor.hosts.addresses import login_address, own_address
from distrun.supervisor.hosts.background_calls import BackgroundCalls
from distrun.supervisor.hosts.file_delivery import FileSender, list_parts
from distrun.supervisor.hosts.file_source import FileSource, Found, is_plain
from distrun.supervisor.hosts.former_agents import FormerAgent
from distrun.supervisor.hosts.host_channel import ChecksummedReceiver, Damage, HostChannel
from distrun.supervisor.hosts.kubernetes import KubernetesReach, _Keeper
from distrun.supervisor.hosts.link import Link, LinkState, Links, MAX_CONNECTING
from distrun.supervisor.hosts.log_mirror import LogMirror
from distrun.supervisor.hosts.orders import Orders
from distrun.supervisor.hosts.reach import Lifetime, Login, Purpose
from distrun.supervisor.hosts.report_receiver import ReportReceiver
from distrun.supervisor.hosts.sent_agents import SentAgents
from distrun.supervisor.hosts.srun import SrunReach
from distrun.supervisor.hosts.ssh import open_connection
from distrun.supervisor.hosts.ssh_command import link_command
from distrun.supervisor.hosts.ssh_diagnosis import diagnose, is_transient
