"""Texts without secrets and without the names of users and hosts."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from distrun import lifecycle
from distrun.job.events import decode, encode
from distrun.job.folder import JobFolder
from distrun.redaction import Redactor, secret_values
from distrun.redaction.own_words import own_words

from .histories import MWM, Job


def test_a_private_key_is_replaced_line_by_line() -> None:
    text = (
        "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAABG5vbmU\n"
        "-----END OPENSSH PRIVATE KEY-----\nafter"
    )
    lines = Redactor(mask="***")(text).split("\n")
    assert lines[2:4] == ["***", "***"]
    assert (lines[0], lines[5], len(lines)) == ("before", "after", 6)


KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("newline", ["\\n", "\\\\n", " "])
def test_a_private_key_on_one_line_is_replaced(kind: str, newline: str) -> None:
    begin, end = f"-----BEGIN {kind}PRIVATE KEY-----", f"-----END {kind}PRIVATE KEY-----"
    text = f"KEY='{newline.join([begin, KEY, KEY, end])}' by anna\nafter"
    shown = Redactor(users=["anna"], mask="***")(text)
    assert shown == f"KEY='{begin}***{end}' by user-1\nafter"


def test_a_key_that_never_ends_hides_no_other_lines() -> None:
    text = f"no -----BEGIN PRIVATE KEY----- found\nnext\n\nat anna: {KEY}\nepoch 1/3: loss 0.5"
    shown = Redactor(users=["anna"], mask="***")(text).split("\n")
    assert shown[-1] == "epoch 1/3: loss 0.5"
    text = f"INFO -----BEGIN PGP PRIVATE KEY BLOCK-----\nINFO {KEY}\nINFO {KEY}=\nINFO done by me"
    assert Redactor()(text).split("\n")[1:] == ["[secret-1]", "[secret-1]", "INFO done by me"]


NAMES: dict[str, tuple[list[str], list[str], str, str]] = {
    "alike everywhere": (
        ["anna"],
        ["gpu1.lab.example", "gpu2", "ps"],
        "/home/anna/run.py at gpu1:2222, GPU1.lab.example, gpu2-ib0, ps:0; annable gpu17",
        "/home/user-1/run.py at host-1:2222, host-1, host-2-ib0, ps:0; annable gpu17",
    ),
    "addresses but loopback": (
        [],
        ["10.0.0.5"],
        "10.0.0.5:22 [fe80::1%eth0] 192.168.1.9 10.0.0.5 127.0.0.1 ::1 0.0.0.0",
        "address-1:22 [address-2%eth0] address-3 address-1 127.0.0.1 ::1 0.0.0.0",
    ),
    "addresses before punctuation": (
        [],
        ["gpu1"],
        "to 2001:db8::5: no; from 2001:db8::5. ::ffff:10.1.2.3, 10.1.2.3. 10.1.2.3/24 12:30:45",
        "to address-1: no; from address-1. address-2, address-2. address-2/24 12:30:45",
    ),
    "of any form": (
        ["j_doe", "_svc", "jürgen", "lab\\\\max.muster"],
        ["gpu_1", "10-0-0-5.ec2.internal"],
        "J_DOE_model.h5 ~_svc/x jürgen: gpu_1-ib 10-0-0-5 as lab\\\\max.muster in",
        "user-1_model.h5 ~user-2/x user-3: host-1-ib host-2 as user-4 in",
    ),
    "behind what resembles an address": (
        ["j_doe"], ["gpu1"], "a_26_01_02_03_04_05_06_j_doe.h5", "a_26_01_02_03_04_05_06_user-1.h5"
    ),
    "two machines of one short name": (
        [],
        ["gpu1.a.example", "gpu1.b.example", "gpu2", "gpu2.a.example"],
        "gpu1.a.example gpu1.b.example gpu1 gpu2 gpu2.a.example",
        "host-1 host-2 host-1 host-3 host-3",
    ),
    "unknown ones where it is clear what they are": (
        ["anna", "worker"],
        ["gpu1"],
        "bob@gpu9.lab: /home/bob/x /home/worker/y ssh://anna@gpu1, worker, root@localhost",
        "user-2@host-2: /home/user-2/x /home/user-3/y ssh://user-1@host-1, worker, root@localhost",
    ),
    "a range": ([], [f"gpu-{n:02}" for n in range(1, 17)], '- "gpu-[01-16]"', '- "host-[01-16]"'),
    "replacements that are names": (
        [], ["host-2", "host-1"], "host-1 host-2 bob@host-1", "host-4 host-3 user-1@host-4"
    ),
    "none are given": ([], [], "anna at 10.0.0.5", "anna at 10.0.0.5"),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMES)
def test_names_are_replaced(what: str) -> None:
    users, hosts, text, shown = NAMES[what]
    redactor = Redactor((), users, hosts)
    assert redactor(text) == shown
    assert redactor.kept == [each for each in (*users, *hosts) if each in ("ps", "worker")]


@pytest.mark.parametrize(
    "character", [*'aA0:.=-/@["\\ ', "a.", "-a", "a=", "eyJaaaaaaaa-", "x\n", "key "]
)
def test_a_long_line_takes_no_long_time(character: str) -> None:
    redactor = Redactor(["hunter2-x"], ["anna", "j_doe"], ["gpu1.lab.example"])
    begin = time.process_time()
    for before in ("", "token=", "token ", "-----BEGIN PRIVATE KEY-----", "://a:", "/home/"):
        redactor(before + character * (50_000 // len(character)))
    assert time.process_time() - begin < 4


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40))
def test_a_known_secret_is_found_however_it_is_written(secret: str) -> None:
    redactor = Redactor([secret])
    assume(secret not in own_words())
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        shown = redactor(f"<{text}>")
        assert secret not in shown
        assert "[secret-1]" in shown
    encoded = json.dumps({"a": [f"it is {secret}!"]})
    (shown,) = json.loads(redactor.json(encoded))["a"]
    assert "[secret-1]" in shown
    assert secret not in shown


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40))
def test_no_way_to_write_a_secret_in_a_file_shows_it(secret: str) -> None:
    assume(secret not in own_words() and len(secret.strip()) >= 8 and not secret.isdigit())
    assume("localhost" not in secret)  # an address of this machine stays as a key
    redactor = Redactor([secret])
    values = {"a": secret, "b": [f"<{secret}>"], "c": json.dumps({"d": secret}), secret: 1}
    shown = redactor.json(json.dumps(values))
    assert secret not in str(json.loads(shown))
    assert json.loads(json.loads(shown)["c"])["d"].strip() == "[secret-1]"
    for text in (
        yaml.safe_dump({"a": secret}, width=1000),
        f"https://x/?q={quote(secret, safe='')}",
    ):
        assert all(each not in redactor(text) for each in {secret, quote(secret, safe="")})


@pytest.mark.parametrize("kind", ["users", "hosts", "secrets"])
def test_no_name_and_no_secret_makes_a_record_unreadable(kind: str) -> None:
    job = Job()
    job.created(MWM)
    job.planned("worker:0", "worker:1", places={"worker:1": "gpu1"})
    job.started("worker:0", "worker:1")
    job.exited("worker:1", 3)
    job.ended("worker:0", "worker:1")
    lines = [json.dumps(encode(event)) for event in job.history]
    expected = lifecycle.replay(job.history)
    words = sorted(own_words())
    for number in range(20):  # many at a time: it is as likely that one spoils the record
        redactor = Redactor(**{kind: words[number::20]})  # type: ignore[arg-type]
        events = [decode(json.loads(redactor.json(line))) for line in lines]
        state = lifecycle.replay([event for event in events if event is not None])
        assert len(events) == len(lines)
        assert (state.phase, [*state.tasks]) == (expected.phase, [*expected.tasks]), number
        assert state.outcome == expected.outcome, number


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    line = b'{"event": "\xff", "MY_TOKEN": "hunter2-x"}'.decode("utf-8", "surrogateescape")
    shown = Redactor(["hunter2-x"]).json(line).encode("utf-8", "surrogateescape")
    assert shown == b'{"event": "\xff", "MY_TOKEN": "[secret-1]"}'


def test_the_secrets_of_a_job_are_those_of_its_arguments_and_variables(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    argv = ["python", "--password", "of-argv", "--api-key=of-option", "--token", "--steps", "9"]
    env = {"DATA": "postgres://anna:of-url@db/x", "RUN": "x --secret $SECRET", "KEY": "x"}
    plan = {
        "pass_env": ["DATA_URL"],
        "env": {"A_TOKEN": "of-all"},
        "tasks": [{"argv": argv, "env": env}],
    }
    folder.plan_file.write_text(json.dumps(plan))
    folder.resolved_spec_file.write_text(json.dumps({"roles": [{"env": {"B_SECRET": "of-role"}}]}))
    environ = {"DATA_URL": "https://data", "MY_PASSWORD": "of-shell", "HOME": "/root"}
    assert set(secret_values(folder, environ)) == {
        *("of-argv", "of-option", "of-url", "of-all", "of-role", "https://data", "of-shell")
    }
    folder.plan_file.write_text("{")
    folder.resolved_spec_file.write_text("{")
    assert secret_values(folder, {}) == []
