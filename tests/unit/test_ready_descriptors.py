"""What is registered for a descriptor is called only while that registration stands."""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import distrun
from distrun.agent.linux import syscalls


def _close(selector: selectors.BaseSelector, number: int, called: list[str]) -> None:
    selector.unregister(number)
    os.close(number)


def _reuse(selector: selectors.BaseSelector, number: int, called: list[str]) -> None:
    """Another pipe gets the number of the descriptor, and is registered."""
    _close(selector, number, called)
    reader, writer = os.pipe()
    os.write(writer, b"x")
    os.close(writer)
    if reader != number:
        os.dup2(reader, number)
        os.close(reader)
    selector.register(number, selectors.EVENT_READ, lambda: called.append("new"))


@pytest.mark.parametrize(("replace", "later"), [(_close, []), (_reuse, ["new"])])
def test_a_descriptor_that_an_earlier_call_closed_is_not_served(
    replace: Callable[[selectors.BaseSelector, int, list[str]], None], later: list[str]
) -> None:
    called: list[str] = []
    pipes = [os.pipe() for _ in range(2)]
    numbers = [reader for reader, _ in pipes]

    def on_ready(own: int, other: int) -> None:
        called.append("old")
        selector.unregister(own)
        replace(selector, other, called)

    with selectors.DefaultSelector() as selector:
        for own, other in (numbers, numbers[::-1]):
            selector.register(own, selectors.EVENT_READ, partial(on_ready, own, other))
        for _, writer in pipes:
            os.write(writer, b"x")
        syscalls.serve_ready(selector, 0)
        assert called == ["old"]
        syscalls.serve_ready(selector, 0)
        assert called == ["old", *later]
    for _, writer in pipes:
        os.close(writer)
    for number in numbers:
        with contextlib.suppress(OSError):  # the one that was closed
            os.close(number)


def test_ready_descriptors_are_served_in_one_place() -> None:
    folder = Path(distrun.__file__).parent
    places = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("*.py"))
        if "key.data()" in path.read_text()
    ]
    assert places == ["agent/linux/syscalls.py"]
