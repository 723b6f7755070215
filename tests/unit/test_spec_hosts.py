"""Ranges of hosts, and hostfiles as other launchers take them."""

import os
from pathlib import Path

import pytest

from harness.command import write_program
from harness.parts.settings import host_set
from harness.parts.spec import find_target
from harness.specs import load_text, refusal
from harness.values import not_none


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu1", ["gpu1"]), ("user@gpu1.example.com", ["user@gpu1.example.com"]),
        ("fe80::1%eth0", ["fe80::1%eth0"]),
        ("g[01-03,07,9-10]", ["g01", "g02", "g03", "g07", "g9", "g10"]),
        ("g[08-10]", ["g08", "g09", "g10"]), ("g[098-101]", ["g098", "g099", "g100", "g101"]),
        ("r[1-2]-n[1, 3]", ["r1-n1", "r1-n3", "r2-n1", "r2-n3"]),
        ("u@g[1-2].x", ["u@g1.x", "u@g2.x"]), ("[1-2]", ["1", "2"]),
    ],
)  # fmt: skip
def test_a_set_of_hosts(text: str, names: list[str]) -> None:
    found = host_set(text)

    assert (list(found.names()), found.count) == (names, len(names))


HOSTFILE = "strategy: mirrored\nprogram: {script: train.py}\nhostfile: hosts.txt\n"


@pytest.mark.parametrize(
    "rest",
    [
        "hosts: [{name: a, address: localhost}]\ncluster: {worker: ['localhost:1', 'localhost:2']}",
        "hosts: [{name: a, address: localhost}]\ncluster: {worker: 2}",
        "hosts: [localhost, a]\ncluster: {worker: ['localhost:1', 'localhost:2']}",
        # Behind one address, with ports that somebody leads on.
        "hosts: [{name: a, address: x}, {name: b, address: x}]\ncluster: {worker: ['A:1', 'b:2']}",
        "hosts: [{name: a, address: x}, {name: b, address: x}]\ncluster: {worker: 1, evaluator: 1}",
    ],
)
def test_addresses_that_lead_where_they_should(folder: Path, rest: str) -> None:
    load_text(folder, f"strategy: multi_worker_mirrored\nprogram: {{script: train.py}}\n{rest}\n")


def test_a_hostfile_of_every_kind(folder: Path) -> None:
    (folder / "hosts.txt").write_text(
        "# Open MPI\n\nnode1 slots=4\n node2   slots=2 max_slots=3 # two\nnode3\r\n"
        "u@node4:8\nlocalhost slots=1\nn[05-06] slots=2\nn05\nn06 slots=2\n"
    )
    spec = load_text(folder, HOSTFILE)
    assert [(host.name, host.slots) for host in spec.hosts] == [
        ("node1", 4), ("node2", 2), ("node3", None), ("u@node4", 8), ("localhost", 1),
        ("n05", 3), ("n06", 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("hostfile", "told"),
    [
        ("", "1:1: no host is named here; write one per line, such as 'gpu1 slots=4'"),
        ("a\n  b slot=4\n", "2:5: unknown word 'slot=4'; write 'host slots=4'"),
        (
            "a\nu@a\n",
            "2:1: the host 'u@a' is given twice: it is 'a' again; keep one, and set its slots",
        ),
        ("a slots=0\n", "1:1: the host 'a' has 0 slots; remove the line"),
        ("a\nb[1\n", "2:1: the host has a bracket without its partner in 'b[1'"),
    ],
)
def test_a_wrong_hostfile_is_told_with_its_place(folder: Path, hostfile: str, told: str) -> None:
    (folder / "hosts.txt").write_text(hostfile)
    assert str(refusal(folder, HOSTFILE)) == f"hosts.txt:{told}"


@pytest.mark.parametrize(
    ("program", "base"),
    [
        ("{script: sub/train.py}", "sub"), ("{script: ../train.py}", ".."),
        ("{script: sub/train.py, sync: off}", None), ("{script: sub/train.py, sync: [data]}", "."),
        ("{script: sub/train.py, sync: [../train.py]}", ".."), ("{module: sub.train}", "."),
        ("{module: sub.train, workdir: sub}", "sub"), ("{command: [./run.sh]}", "."),
        ("{command: [./run.sh], workdir: sub}", "."), ("{command: [sh, run.sh]}", "."),
        ("{command: [cat], args: [data]}", "."), ("{script: sub/link.py}", ".."),
        ("{command: [cat], workdir: sub, args: [data]}", None),
        ("{command: [sh, -c, ls data; echo]}", None), ("{command: [ls, ., .., '', /bin/sh]}", None),
    ],
)  # fmt: skip
def test_what_other_hosts_are_sent(tmp_path: Path, program: str, base: str | None) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    for path in (here / "sub" / "train.py", here / "run.sh", here / "data", tmp_path / "train.py"):
        path.touch()
    (here / "sub" / "link.py").symlink_to(tmp_path / "train.py")  # with modules beside that
    for host, is_needed in (("far", base), ("somebody@localhost", base), ("localhost", None)):
        spec = load_text(here, f"strategy: mirrored\nprogram: {program}\nhosts: [{host}]\n")
        assert spec.sends_files == (is_needed is not None), host
        found = "" if base is None else str((here / base).resolve())
        assert spec.program.sync_base == found


def test_the_hosts_own_python_runs_the_tasks_here(folder: Path) -> None:
    text = "strategy: default\nprogram: {script: train.py, python: /p}\nhosts: [{name: localhost"
    for own, python in (("}]", "/p"), (", python: /own}]", "/own")):
        assert not_none(find_target(load_text(folder, text + own))).python == python


def test_a_pipe_is_no_hostfile(folder: Path) -> None:
    os.mkfifo(folder / "hosts.txt")
    # It must not be opened: that waits until somebody writes.
    assert str(refusal(folder, HOSTFILE)) == (
        f"job.yaml:3:11: hostfile is not a file: '{folder}/hosts.txt'; name a file"
    )


def test_where_ssh_leads_is_the_address(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = 'for host; do :; done\n[ "$host" = gpu1 ] && echo hostname 10.9.9.9\n'
    write_program(folder / "ssh", f"#!/bin/sh\n{name}")
    monkeypatch.setenv("PATH", str(folder))
    spec = load_text(
        folder,
        "strategy: multi_worker_mirrored\nprogram: {script: train.py}\n"
        "hosts: [gpu1, gpu2]\ncluster: {worker: ['10.9.9.9:1234']}\n",
    )
    assert [host.address for host in spec.hosts] == ["10.9.9.9", None]
