"""The files that a job's tasks need on other hosts.

The launch command selects them (:mod:`distrun.sync.file_selection`), the supervisor sends them
(:mod:`distrun.supervisor.hosts.file_delivery`), and the agent on each host receives them
(:mod:`distrun.agent.files.receiver`).
"""
