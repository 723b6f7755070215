"""What a task says when another has ended: TensorFlow's, gRPC's and plain sockets' words.

Where no other task ended or hung, the same words mean that the network failed.
"""

from __future__ import annotations

from distrun.verdict.model import Kind
from distrun.verdict.rules.rule import Rule

PROXY = Rule(
    kind=Kind.PROXY,
    cause="reached its peers only through a proxy",
    advice=(
        "unset http_proxy and https_proxy for the tasks, or name the cluster's hosts in no_proxy "
        "(distrun does, unless the spec sets no_proxy itself)"
    ),
    any_of=("HTTP proxy returned", "HTTP CONNECT"),
    tensorflows=("http_proxy", "https_proxy", "via proxy"),
)

_ADVICE = "check the network between the hosts, and what the other tasks printed last"

COLLECTIVE = Rule(
    kind=Kind.CONNECTION_LOST,
    cause="lost its peers",
    advice=_ADVICE,
    any_of=(
        "Collective ops is aborted by",
        "Error reported from /job:",
        "stopped sending heartbeats",
        "The tasks have crashed",
        "tensorflow.CoordinationService",
        "CoordinationServiceError",
    ),
    tensorflows=(
        "Coordination service",
        "coordination service",
        "Barrier failed",
        "Barrier timed out",
        "Shutdown barrier",
    ),
    is_echo=True,
)

CONNECTION = Rule(
    kind=Kind.CONNECTION_LOST,
    cause="lost its peers",
    advice=_ADVICE,
    types=(
        "errors_impl.UnavailableError",
        "errors_impl.AbortedError",
        "errors_impl.CancelledError",
        "errors_impl.DeadlineExceededError",
        "ConnectionError",
        "ConnectionResetError",
        "ConnectionRefusedError",
        "ConnectionAbortedError",
        "BrokenPipeError",
    ),
    any_of=(
        "Socket closed",
        "Connection reset by peer",
        "Connection refused",
        "failed to connect to all addresses",
        "Broken pipe",
        "Stream removed",
        "Transport closed",
        "keepalive watchdog timeout",
        "remote process exited",
        "NCCL error",
    ),
    tensorflows=("GOAWAY", "UnavailableError", "AbortedError", "CancelledError"),
    is_echo=True,
)

RULES = (PROXY, COLLECTIVE, CONNECTION)
