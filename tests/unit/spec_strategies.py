"""Generated spec documents that are valid, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

DURATIONS = st.builds(
    "{}{}".format,
    st.sampled_from(["1", "10", "1.5", "500"]),
    st.sampled_from(["ms", "s", "m", "h"]),
)
OFF_OR_DURATION = st.just("off") | DURATIONS
LINKS = st.sampled_from(["off", "2s", "2.5s", "10s", "5000ms", "1m", "1.5h"])
"""No shorter ones are valid."""

# What any process can be given: text without NUL and without half surrogates.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NAME_CHARACTERS = st.characters(
    exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    exclude_categories=["Cc", "Cs", "Zl", "Zp"],
)
"""No control characters, ends of lines, or characters that reverse text."""
VERBATIM = TEXTS | st.integers(-(10**12), 10**12) | st.booleans()
ONE_LINE = VERBATIM.filter(lambda value: not {"\n", "\r"} & set(str(value)))
ARGS = st.lists(VERBATIM, max_size=4)
ENV_NAMES = st.from_regex(r"(?!DISTRUN_)[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
ENV = st.dictionaries(ENV_NAMES, VERBATIM, max_size=3)

EXIT_CODES = st.integers(1, 255) | st.sampled_from(["1-127", "130-255", "3-3", "7 - 9"])
CONDITIONS = EXIT_CODES | st.sampled_from(["preemption", "failure", "any failure", "always"])
RESTART_KEYS: dict[str, st.SearchStrategy[Any]] = {
    "max": st.integers(0, 10),
    "backoff": st.sampled_from(["0s", "500ms", "1s"]),
    "backoff_max": st.sampled_from(["1s", "1h"]),
    "reset_after": OFF_OR_DURATION,
    "on": CONDITIONS | st.lists(CONDITIONS, min_size=1, max_size=3),
    "never_on": st.lists(EXIT_CODES, max_size=3),
}
RESTART = st.fixed_dictionaries({}, optional=RESTART_KEYS)

ROLE_OPTIONS = {
    "restart": RESTART | st.sampled_from(["never", "failure", "preemption", "always"]),
    "gpus": st.integers(0, 8),
    "cpus": st.integers(1, 64),
    "args": ARGS,
    "env": ENV,
}


def counts(least: int, most: int) -> st.SearchStrategy[Any]:
    """A role's number of tasks, as a number or as a mapping."""
    number = st.integers(least, most)
    return number | st.fixed_dictionaries({"count": number}, optional=ROLE_OPTIONS)


@st.composite
def addressed(draw: st.DrawFn, ports: st.SearchStrategy[int], most: int) -> Any:
    """A role's addresses on this machine, as a list or in a mapping."""
    hosts = st.sampled_from(["localhost", "127.0.0.1", "[::1]"])
    addresses = [f"{draw(hosts)}:{draw(ports)}" for _ in range(draw(st.integers(1, most)))]
    options = draw(st.none() | st.fixed_dictionaries({}, optional=ROLE_OPTIONS))
    return addresses if options is None else {"addresses": addresses, **options}


@st.composite
def clusters(draw: st.DrawFn, strategy: str) -> Any:
    """The roles that `strategy` takes, or None for no `cluster` at all."""
    if strategy == "parameter_server":
        required, optional = {"worker": 4, "ps": 2}, {"evaluator": 1}
        if draw(st.booleans()):
            required["chief"] = 1
    elif strategy == "multi_worker_mirrored":
        required, optional = {"worker": 4}, {"chief": 1, "evaluator": 1}
    else:
        return draw(st.none() | st.fixed_dictionaries({"worker": counts(1, 1)}))
    roles = {}
    ports = st.integers(20000, 40000)
    if draw(st.booleans()):
        taken: set[int] = set()
        fresh = ports.filter(lambda port: port not in taken).map(
            lambda port: taken.add(port) or port  # type: ignore[func-returns-value]
        )
        for role, most in required.items():
            roles[role] = draw(addressed(fresh, most))
    else:
        roles.update({role: draw(counts(1, most)) for role, most in required.items()})
    for role in optional:
        if draw(st.booleans()):
            roles[role] = draw(counts(0, 1))
    return roles


HOST_NAMES = st.sampled_from(["gpu1", "user@gpu2", "gpu-[01-16]", "r[1-2]-n[3,5-6]", "10.0.0.5"])
HOST_MAPPINGS = st.fixed_dictionaries(
    {"name": st.sampled_from(["big1", "u@big2", "10.0.0.7"])},
    optional={
        "address": st.sampled_from(["10.1.1.1", "fd00::5", "big.example"]),
        "slots": st.integers(1, 64),
        "gpus": st.integers(0, 8) | st.lists(st.integers(0, 7), unique=True, max_size=4),
        "python": st.sampled_from(["python3", "/opt/tf/bin/python"]),
        "workdir": st.sampled_from(["/data", "/"]),
        "env": ENV,
    },
)


@st.composite
def hosts(draw: st.DrawFn) -> list[Any]:
    """This machine first, since generated addresses are its own; the others once each."""
    here = draw(st.sampled_from(["localhost", {"name": "localhost", "slots": 8}]))
    names = draw(st.lists(HOST_NAMES, unique=True, max_size=3))
    one = draw(st.lists(HOST_MAPPINGS, max_size=1))
    return [here, *names, *one]


PROGRAM_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "args": ARGS,
    "workdir": st.just("."),
    "env": ENV,
    "pass_env": st.just([]) | st.just(["PATH"]),
    "sync": st.sampled_from(["script", "off", ["train.py"]]),
}
PROGRAMS = (
    st.fixed_dictionaries(
        {"script": st.just("train.py")},
        optional={**PROGRAM_OPTIONS, "python": st.sampled_from(["python3", "./bin/python"])},
    )
    | st.fixed_dictionaries(
        {"module": st.sampled_from(["trainer", "trainer.main"])}, optional=PROGRAM_OPTIONS
    )
    | st.fixed_dictionaries(
        {"command": ARGS.map(lambda args: ["./train.sh", *args])}, optional=PROGRAM_OPTIONS
    )
).filter(lambda program: "PATH" not in program.get("env", {}))

OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "name": st.text(NAME_CHARACTERS, min_size=1, max_size=20),
    "hosts": hosts(),
    "placement": st.sampled_from(["spread", "pack"]),
    "ssh": st.fixed_dictionaries({}, optional={
        "user": st.just("u"),
        "port": st.integers(1, 65535),
        "options": st.dictionaries(st.sampled_from(["ServerAliveInterval", "Compression"]),
                                   VERBATIM, max_size=2),
        "connect_timeout": DURATIONS,
    }),
    "success": st.sampled_from(["strategy", "worker0", "all"]),
    "restart": RESTART,
    "timeouts": st.fixed_dictionaries({}, optional={
        "start": OFF_OR_DURATION,
        "run": OFF_OR_DURATION,
        "grace": DURATIONS | st.just("0s"),
        "stall": OFF_OR_DURATION,
        "link": LINKS,
    }),
    "ports": st.just("auto") | st.just({"range": "20000-21000"}),
    "logs": st.fixed_dictionaries({}, optional={
        "max_size": st.sampled_from(["off", "100MB", "1GiB", "1.5KiB"]),
    }),
    "slurm": st.fixed_dictionaries({}, optional={
        "partition": st.just("gpu"),
        "nodes": st.integers(1, 10),
        "time": st.sampled_from(["1h", "12h"]),
        "gpus_per_node": st.integers(0, 8) | st.just("a100:4"),
        "mem_per_node": st.sampled_from(["100MB", "1GiB"]),
        "requeue": st.booleans(),
        "signal_before_end": st.sampled_from(["30s", "2m"]),
        "options": st.dictionaries(st.sampled_from(["comment", "mail-type"]), ONE_LINE,
                                   max_size=2),
        "setup": st.just(["module load cuda"]),
    }),
    "tensorboard": st.fixed_dictionaries({"logdir": st.just("logs")}, optional={
        "port": st.just("auto") | st.integers(1, 65535),
    }),
}  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid spec as YAML's values; its folder needs a `train.py`, its environment a `PATH`."""
    strategy = draw(st.sampled_from([
        "default", "one_device", "mirrored", "central_storage", "tpu",
        "multi_worker_mirrored", "parameter_server",
    ]))  # fmt: skip
    document = {"strategy": strategy, "program": draw(PROGRAMS)}
    cluster = draw(clusters(strategy))
    if cluster is not None:
        document["cluster"] = cluster
    document.update(draw(st.fixed_dictionaries({}, optional=OPTIONAL)))
    if strategy == "parameter_server" and draw(st.booleans()):
        document["workers"] = "independent"
    return document
