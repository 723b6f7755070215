"""What the agent and the supervisor both need of Linux.

:mod:`.processes` are process trees, :mod:`.syscalls` wraps system calls that Python lacks,
:mod:`.facts` says what a host has, and :mod:`.oom` finds out whether the kernel killed a process
for want of memory.
"""
