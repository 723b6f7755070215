"""Values that hypothesis generates for several tests."""

from typing import Any

from hypothesis import strategies as st

from distrun.agent.protocol import Cause, Code

# What Python makes of any bytes in argv, environ and paths.
OS_TEXT = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


def causes(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Causes with any codes and numbers, and others within them."""
    texts = st.lists(text, max_size=3).map(tuple)
    return st.recursive(
        st.builds(
            Cause, st.sampled_from(list(Code)),
            **dict.fromkeys(("task", "host", "path", "name", "version", "expected", "text"), text),
            **dict.fromkeys(("commands", "hosts", "addresses", "tasks"), texts),
            port=st.integers(0, 65535), pid=st.integers(0, 1 << 31), errno=st.integers(-4095, 4095),
            signal=st.integers(0, 64), status=st.none() | st.integers(-255, 255),
            seconds=st.floats(-1e11, 1e11), count=st.integers(-(1 << 62), 1 << 62),
            total=st.integers(-(1 << 62), 1 << 62), within=st.just(()),
        ),
        lambda inner: st.tuples(inner, st.lists(inner, max_size=2)).map(
            lambda made: made[0]._replace(within=tuple(made[1]))
        ),
        max_leaves=4,
    )  # fmt: skip
