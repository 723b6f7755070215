"""How an agent is reached: a process here, or over ssh.

Whatever reaches it, the bytes on the link are the same: :mod:`distrun.agent.wire`. What only ssh
needs, :mod:`distrun.transport.ssh`, is loaded by jobs with other hosts alone.
"""

from distrun.transport.local import AgentLink, isolated_python, start_local_agent

__all__ = ["AgentLink", "isolated_python", "start_local_agent"]
