"""The parts of Linux that both the agent and the launcher need.

:mod:`.processes`: process trees; :mod:`.syscalls`: system calls that Python lacks; :mod:`.facts`:
facts of a host; :mod:`.peers`: who is at the other end of a socket; :mod:`.sock_diag`: who listens,
and who has taken a socket's name; :mod:`.private_dir`: folders that others cannot change;
:mod:`.oom`: whether the kernel killed a process for lack of memory.
"""
