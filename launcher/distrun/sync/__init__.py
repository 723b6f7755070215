"""The files that a job's tasks need on other hosts: which they are, and how they get there.

:mod:`distrun.sync.files` chooses them, in the launch command;
:mod:`distrun.supervisor.hosts.file_sender` sends them, in the supervisor, which has no package but
the standard library; on the host :mod:`distrun.agent.files.receiver` receives them.
"""
