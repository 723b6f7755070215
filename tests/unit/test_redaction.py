"""Texts without secrets and without the names of users and hosts; and what only resembles them."""

import json
import re
import string
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.parts.job import KINDS, decode, encode
from harness.parts.lifecycle import lifecycle
from harness.parts.protocol import Code
from harness.parts.records import JobFolder
from harness.parts.report import Redactor, make_redactor, own_words, secret_values
from harness.parts.top import STRATEGIES, Role
from harness.scenarios import play

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH ", "ENCRYPTED "])
@pytest.mark.parametrize("newline", ["\\n", "\\\\n", " "])
def test_a_private_key_on_one_line_is_replaced(kind: str, newline: str) -> None:
    begin, end = f"-----BEGIN {kind}PRIVATE KEY-----", f"-----END {kind}PRIVATE KEY-----"
    text = f"PEM='{newline.join([begin, KEY, KEY, end])}' by anna\nafter"
    assert Redactor(users=["anna"], mask="***")(text) == f"PEM='{begin}***{end}' by user-1\nafter"


def test_a_key_that_never_ends_hides_no_other_lines() -> None:
    text = f"no -----BEGIN PRIVATE KEY----- found\nnext\n\nat anna: {KEY}\nepoch 1/3: loss 0.5"
    assert Redactor(users=["anna"], mask="***")(text).split("\n")[-1] == "epoch 1/3: loss 0.5"
    begin = "-----BEGIN PGP PRIVATE KEY BLOCK-----"
    assert Redactor()(f"{begin}\n{KEY}\n{KEY}=\ndone by me") == f"{begin}[secret-1]\ndone by me"


NAMES: dict[str, tuple[list[str], list[str], str, str]] = {
    "alike everywhere": (
        ["anna"], ["gpu1.lab.example", "gpu2", "ps"],
        "/home/anna/run.py at gpu1:2222, GPU1.lab.example, gpu2-ib0, ps:0; annable gpu17",
        "/home/user-1/run.py at host-2:2222, host-2, host-3-ib0, ps:0; annable gpu17",
    ),
    "addresses but loopback": (
        [], ["10.0.0.5", "fe80::1", "127.0.0.1", "::1", "root", "localhost"],
        "10.0.0.5:22 [fe80::1%eth0] 110.0.0.5 10.0.0.5. 127.0.0.1 ::1 root@localhost",
        "host-1:22 [host-2%eth0] 110.0.0.5 host-1. 127.0.0.1 ::1 root@localhost",
    ),
    "of any form": (
        ["j_doe", "_svc", "jürgen"], ["gpu_1", "10-0-0-5.ec2.internal"],
        "J_DOE_model.h5 ~_svc/x jürgen: gpu_1-ib 10-0-0-5 and 10-0-0-5.ec2.internal",
        "user-1_model.h5 ~user-2/x user-3: host-4-ib host-5 and host-5",
    ),
    "of ranges, and numbers": (
        ["1000"], ["gpu-03.lab.example", "rack1-n3"],
        "[gpu-[01-16].lab.example, gpu-[1,3], rack[1-2]-n[1,3-4]] n[0] rack[1] step 1000",
        "[name, name, name] n[0] rack[1] step 1000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NAMES)
def test_names_are_replaced(what: str) -> None:
    users, hosts, text, shown = NAMES[what]
    redactor = Redactor((), users, hosts)
    assert redactor(text) == shown


@pytest.mark.parametrize(
    "character",
    [*'aA0:.=-/@["\\ ', "a.", "-a", "a=", "eyJaaaaaaaa-", "x\n", "key ", "KEY=", "sid=/1"],
)
def test_a_long_line_takes_no_long_time(character: str) -> None:
    redactor = Redactor(["hunter2-x"], ["anna", "j_doe"], ["gpu1.lab.example"])
    begin = time.process_time()
    for before in ("", "token=", "token ", "-----BEGIN PRIVATE KEY-----", "://a:", "/home/"):
        redactor(before + character * (12_500 // len(character)))
    assert time.process_time() - begin < 2


@given(st.text(string.ascii_letters + string.digits + string.punctuation + " ", min_size=8))
def test_a_known_secret_is_found_however_it_is_written(secret: str) -> None:
    assume("secret" not in secret and not secret.isalpha() and len(secret.strip()) >= 8)
    assume(secret not in own_words())
    redactor = Redactor([secret])
    values = {"a": secret, "b": [f"<{secret}>"], "c": json.dumps({"d": secret}), f"{secret}!": 1}
    shown = redactor.json(json.dumps(values))
    assert json.loads(json.loads(shown)["c"])["d"].strip() == "[secret-1]"
    for text in (
        *(shown, redactor(json.dumps(secret)), redactor(repr(secret))),
        redactor(f"https://x/?q={quote(secret, safe='')}"),
    ):
        assert "[secret-1]" in text
        assert secret not in text
        assert quote(secret, safe="") not in text


def test_nothing_is_left_of_a_secret_that_begins_like_another() -> None:
    redactor = Redactor(["hunter2-x", "hunter2-x-production"])
    assert redactor("with hunter2-x-production") == "with [secret-1]"


@pytest.mark.parametrize("kind", ["users", "hosts", "secrets"])
def test_no_name_and_no_secret_makes_a_record_unreadable(kind: str) -> None:
    steps = ["worker:1 exit 3", "worker:0 end", "worker:1 end"]
    job = play(["mwm worker:2 | worker:1@gpu1", *steps])
    lines = [json.dumps(encode(event)) for event in job.history]
    expected = lifecycle.replay(job.history)
    words = [*KINDS, *STRATEGIES, *(code.value for code in Code), *(role.value for role in Role)]
    words += ["task", "attempt", "event", "worker-0"]
    for number in range(20):  # many at a time: it is as likely that one spoils the record
        redactor = Redactor(**{kind: words[number::20]})  # type: ignore[arg-type]
        events = [decode(json.loads(redactor.json(line))) for line in lines]
        state = lifecycle.replay([event for event in events if event is not None])
        assert len(events) == len(lines)
        assert (state.phase, [*state.tasks]) == (expected.phase, [*expected.tasks]), number
        assert state.outcome == expected.outcome, number


def test_the_secrets_of_a_job_are_those_of_its_arguments_and_variables(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    argv = ["python", "--password", "of-argv", "--password=of-option", "mnist", "--token", "-9"]
    env = {"DATA": "postgres://anna:of-url@db/x", "RUN": "x --secret $SECRET", "KEY": "x"}
    plan = {
        "pass_env": ["DATA_URL"], "env": {"A_TOKEN": "of-all"},
        "roles": [{"env": {"B_SECRET": "of-role"}}], "tasks": [{"argv": argv, "env": env}],
    }  # fmt: skip
    folder.resolved_spec_file.write_text(json.dumps(plan))
    environ = {"DATA_URL": "https://data", "MY_PASSWORD": "of-shell", "HOME": "/root"}
    places = ("argv", "option", "url", "all", "role", "shell")
    assert set(secret_values(folder, environ)) == {*map("of-{}".format, places), "https://data"}
    folder.resolved_spec_file.write_text("{")
    assert secret_values(folder, {}) == []


# The forms of secrets -----------------------------------------------------------------------------


HIDDEN = "Xq7rT2mZ9kLw4Vb"
"""No form below may show this text. Nothing but its surroundings says that it is a secret."""
NAME = "anna"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj"
LETTERS = (string.ascii_letters + string.digits) * 2

FORMS = Path(__file__).with_name("secret_forms")


def forms(file: str) -> dict[str, str]:
    text = (FORMS / file).read_text("utf-8").replace("{HIDDEN}", HIDDEN)
    _, *parts = re.split(r"^=== (.*)\n", text, flags=re.MULTILINE)
    return {name: form.rstrip("\n") for name, form in zip(parts[::2], parts[1::2], strict=True)}


BY_NAME = forms("by_name.txt")
SAID = {
    **BY_NAME, **forms("otherwise.txt"), "on the next line": f"Your token:\n{HIDDEN}\n",
    "environ": f"A=1\0DB_PASSWORD={HIDDEN}\0B=2",
    # By its form.
    "private key": f"-----BEGIN PRIVATE KEY-----\n{HIDDEN}{PEM}\n-----END PRIVATE KEY-----",
    "private key in a log": f"I -----BEGIN EC PRIVATE KEY-----\nI {HIDDEN}{PEM}\nI -----END EC",
    "private key in yaml": f"key: |\n  -----BEGIN PRIVATE KEY-----\n  {PEM}\n  {HIDDEN}{PEM}=\n",
}  # fmt: skip

SECRET_NAMES, PLACES_OF_SECRETS, OF_MODELS = map(str.split, forms("names.txt").values())

TOKENS = [
    "hf_" + LETTERS[:34], "api_org_" + LETTERS[:34], "ghp_" + LETTERS[:36], "gho_" + LETTERS[:36],
    "github_pat_" + LETTERS[:22] + "_" + LETTERS[:59], "dapi" + "0123456789abcdef" * 2,
    *(f"{each}-{LETTERS[:20]}" for each in ("glpat", "glrt", "glcbt")),
    *(each + LETTERS[:43] for each in ("hvb.", "1//0")),
    "AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP", "AIza" + LETTERS[:35], "ya29." + LETTERS[:60],
    "GOCSPX-" + LETTERS[:28], "xoxb-1234567890-1234567890-" + LETTERS[:24],
    "xapp-1-A012-123-" + LETTERS[:24], "sk-" + LETTERS[:48], "sk-ant-api03-" + LETTERS[:60],
    "sk_live_" + LETTERS[:24], "npm_" + LETTERS[:36], "pypi-AgEIcHlwaS5vcmc" + LETTERS[:40],
    "dckr_pat_" + LETTERS[:27], "hvs." + LETTERS[:24], "nvapi-" + LETTERS[:60],
    "gsk_" + LETTERS[:52], "r8_" + LETTERS[:37], "wandb_v1_" + LETTERS[:40],
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
]  # fmt: skip

HARMLESS = [*(FORMS / "harmless.txt").read_text("utf-8").splitlines(), "opts = {\n  password: }\n}"]


@pytest.mark.parametrize("form", SAID)
def test_what_its_surroundings_say_is_a_secret_is_replaced(form: str) -> None:
    """Behind its name, it need not look random."""
    shown = Redactor(mask="***")(SAID[form])
    assert not any(each in shown.lower() for each in (HIDDEN.lower(), PEM.lower()))
    plain = Redactor(mask="***")(SAID[form].replace(HIDDEN, "sun-shine"))
    assert "sun-shine" not in plain or form not in BY_NAME, plain


def test_each_name_of_a_secret_hides_its_value_and_no_name_of_a_place_does() -> None:
    redact = Redactor(mask="***")
    assert [each for each in SECRET_NAMES if "sunshine" in redact(f"my_{each}=sunshine")] == []
    names = [f"password_{each}" for each in PLACES_OF_SECRETS]
    names += [f"{each}_{word}" for each in OF_MODELS for word in ("token", "pass")]
    assert [each for each in names if HIDDEN not in redact(f"{each}={HIDDEN}")] == []


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_of_a_known_service_is_replaced(token: str) -> None:
    for around in ("using {}.", "'{}'", "x={},y", "/{}/", "a%3D{}%26", "{}"):
        shown = Redactor(mask="***")(around.format(token))
        assert token[-8:] not in shown, shown


def test_a_token_of_some_length_is_replaced_before_a_host_and_behind_its_scheme() -> None:
    for token in ("Xq7rT2mZ", "abcdefghijklmnopqrstuvwxyz"):
        for text in (f"https://{token}@example.org/x", f"sent Bearer {token}"):
            assert token not in Redactor()(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_a_text_that_only_resembles_a_secret_stays(text: str) -> None:
    assert Redactor(mask="***")(text) == text


KNOWN = "pass of the-Läb/7+x=9&z\"q'end~~~?"
WRITTEN = {
    "as it is": KNOWN, "in a word": f"x{KNOWN}y", "url with slashes": quote(KNOWN),
    "in a link": f"\x1b]8;;https://x/{quote(KNOWN, safe='')}\x07text\x1b]8;;\x07",
}  # fmt: skip


@pytest.mark.parametrize("form", WRITTEN)
def test_a_known_secret_is_replaced_however_it_is_written(form: str) -> None:
    text = f"before\nkey: {WRITTEN[form]}\nafter"
    shown = Redactor([KNOWN], mask="***")(text)
    assert shown.startswith("before\n")
    assert shown.endswith("\nafter")
    for part in (WRITTEN[form], KNOWN, KNOWN[:12], KNOWN[12:], "the-L", "z\"q'end"):
        assert part not in shown, shown


def test_keys_are_replaced_and_a_known_one_line_by_line() -> None:
    key = "0123456789abcdef" * 2 + "01234567"
    for text in (f"wandb login {key}", f"wandb: using the key {key}.", f"WANDB={key}"):
        assert key not in Redactor()(text)
    text = "first-line\nlog: second-line\n"
    assert Redactor([" first-line\n  second-line\n"], mask="***")(text) == "***\nlog: ***\n"


def test_a_user_may_have_no_name_or_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    job: Any = SimpleNamespace(folder=JobFolder(tmp_path), history=())
    assert make_redactor(job, keep_names=False)("step 1") == "step 1"
