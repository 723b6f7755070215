"""The fixtures of tests over ssh."""

from harness.host_fixtures import (
    cut_off,
    has_ended,
    hosts,
    network,
    processes_of,
    remote_spec,
)

__all__ = ["cut_off", "has_ended", "hosts", "network", "processes_of", "remote_spec"]
