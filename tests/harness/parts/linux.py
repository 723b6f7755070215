from distrun.agent.linux import child_deaths, facts, job_processes, labels, limits, oom, private_dir
from distrun.agent.linux import processes, syscalls
from distrun.agent.linux.facts import NvidiaSmiError, ask_nvidia_smi, usable_cores
from distrun.agent.linux.forked_call import ForkedCall
from distrun.agent.linux.gpus import gpus_used
from distrun.agent.linux.job_processes import Traces
from distrun.agent.linux.processes import ChildUsage, Ending, reap_child
from distrun.agent.linux.regular import open_to_append
from distrun.agent.linux.same_files import fingerprint
from distrun.agent.linux.sock_diag import traffic
from distrun.agent.linux.syscalls import Inotify
