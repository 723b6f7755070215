"""Texts without secrets and without the names of users and hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distrun.jobstore import JobFolder
from distrun.redaction import Redactor, secret_values
from distrun.redaction.vocabulary import own_words

HIDDEN = "hunter2-and-more"


@pytest.mark.parametrize(
    "text",
    [
        f"MY_TOKEN={HIDDEN}",
        f"export DB_PASSWORD='{HIDDEN}'",
        f'{{"API_KEY": "{HIDDEN}"}}',
        f"os.environ['AWS_SECRET'] = '{HIDDEN}'",
        f"train.py --password {HIDDEN} --steps 3",
        f"train.py --api-key={HIDDEN}",
        f"  MY_PASSWD: {HIDDEN}",
        f"https://anna:{HIDDEN}@example.org/data",
        f"Authorization: Bearer {HIDDEN}",
    ],
)
def test_what_is_said_to_be_a_secret_is_replaced(text: str) -> None:
    shown = Redactor(mask="***")(text)
    assert HIDDEN not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "token",
    [
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz012345",
        "AKIAABCDEFGHIJKLMNOP",
        "xoxb-1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdef",
    ],
)
def test_what_looks_like_a_token_is_replaced(token: str) -> None:
    assert Redactor()(f"using {token}.") in ("using [secret-1].", "using [secret-1]")


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens = 4096",
        "sorted(found, key=first)",
        "loss: 0.12, accuracy: 0.98",
        "12:30:45 INFO worker:0 started",
        "127.0.0.1:2222 and localhost",
        "tensorflow 2.21.0 on Python 3.11.7",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert Redactor([], ["anna"], ["gpu1"])(text) == text


def test_a_private_key_is_replaced_line_by_line() -> None:
    text = (
        "before\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAABG5vbmU\n"
        "-----END OPENSSH PRIVATE KEY-----\nafter"
    )
    lines = Redactor(mask="***").lines(text).split("\n")
    assert lines[2:4] == ["***", "***"]
    assert (lines[0], lines[5], len(lines)) == ("before", "after", 6)


def test_names_are_replaced_alike_everywhere() -> None:
    redactor = Redactor((), ["anna"], ["gpu1.lab.example", "gpu2", "ps"])
    text = "/home/anna/run.py at gpu1:2222, GPU1.lab.example, gpu2-ib0, ps:0; annable gpu17"
    assert redactor(text) == (
        "/home/user-1/run.py at host-1:2222, host-1, host-2-ib0, ps:0; annable gpu17"
    )
    assert redactor.kept == ["ps"]


def test_addresses_are_replaced_but_loopback() -> None:
    redactor = Redactor((), (), ["10.0.0.5"])
    text = "10.0.0.5:22 [fe80::1%eth0] 192.168.1.9 10.0.0.5 127.0.0.1 ::1 0.0.0.0"
    assert redactor(text) == (
        "address-1:22 [address-3%eth0] address-2 address-1 127.0.0.1 ::1 0.0.0.0"
    )


def test_names_stay_where_none_are_given() -> None:
    assert Redactor()("anna at 10.0.0.5") == "anna at 10.0.0.5"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40))
def test_a_known_secret_is_found_however_it_is_written(secret: str) -> None:
    redactor = Redactor([secret])
    assume(secret not in own_words())
    for text in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        shown = redactor(f"<{text}>")
        assert secret not in shown
        assert "[secret-1]" in shown
    encoded = json.dumps({"a": [f"it is {secret}!"]})
    assert json.loads(redactor.json(encoded)) == {"a": ["it is [secret-1]!"]}


def test_the_secrets_of_a_job_are_those_of_its_variables(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    plan = {
        "pass_env": ["DATA_URL"],
        "env": {"A_TOKEN": "of-all"},
        "tasks": [{"env": {"KEY": "x"}}],
    }
    folder.plan_file.write_text(json.dumps(plan))
    folder.resolved_spec_file.write_text(json.dumps({"roles": [{"env": {"B_SECRET": "of-role"}}]}))
    environ = {"DATA_URL": "https://data", "MY_PASSWORD": "of-shell", "HOME": "/root"}
    found = set(secret_values(folder, environ))
    assert {"of-all", "of-role", "https://data", "of-shell"} <= found
    assert "/root" not in found


def test_a_damaged_plan_has_no_secrets(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    folder.plan_file.write_text("{")
    assert secret_values(folder, {}) == []
