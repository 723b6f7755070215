"""The fixture of tests over ssh."""

from harness.host_fixtures import network, ssh  # noqa: F401
