"""Names and paths with anything in them do nothing but name something."""

import json
import os
import re

import pytest
import yaml

from harness.command import Distrun, Json

HOSTILE = "a'b\"c\n$(touch owned) ../../x; touch owned\x1b[31m\x1b]0;title\x07\u202e`touch owned`"

NAME = "a'b\"c $(touch owned) ../../x; touch owned `touch owned`"


def test_all_commands_show_a_hostile_job(distrun: Distrun, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile_folder = distrun.cwd / "we'ird \"$(touch owned)\n\x1b[31m;touch owned"
    hostile_folder.mkdir()
    document = {
        "name": NAME, "strategy": "multi_worker_mirrored", "cluster": {"worker": 1},
        "program": {"command": ["sh", "-c", 'printf "%s" "$1" > got; exit 3', "sh", HOSTILE],
                    "env": {"E": HOSTILE}},
    }  # fmt: skip
    spec = hostile_folder / "spec $(touch owned).yaml"
    spec.write_text(yaml.safe_dump(document))
    before = set(os.listdir(hostile_folder.parent))
    monkeypatch.setenv("DISTRUN_HOME", str(hostile_folder / "h"))
    distrun.cwd = hostile_folder
    said = [distrun(command, spec) for command in ("validate", "plan", "launch")]
    assert [done.returncode for done in said] == [0, 0, 3]
    assert (hostile_folder / "got").read_text() == HOSTILE
    for args in (("ps", "-a"), ("status", NAME), ("events",), ("logs",)):
        said.append(distrun(*args))
        assert said[-1].returncode == 0, said[-1].stderr
    said.append(distrun("status", "no such \x1b[31m"))
    assert said[-1].returncode == 2
    job = distrun.status()
    assert job["name"] == NAME
    assert re.fullmatch(r"[a-z0-9-]+", job["job_id"])
    assert os.path.dirname(job["folder"]) == str(hostile_folder / "h" / "jobs")
    assert not re.search(r"[\x1b\x07\u202e]", "".join(done.stdout + done.stderr for done in said))
    assert set(os.listdir(hostile_folder.parent)) == before
    assert sorted(os.listdir(hostile_folder)) == ["got", "h", spec.name]
    assert distrun("clean", "--all").stdout == f"{job['job_id']}\n"


def test_a_name_that_would_act_on_a_terminal_is_refused(distrun: Distrun) -> None:
    spec = distrun.write_spec("exit 0")
    name = "a\x1b[31m\n"
    for args in (["--name", name], ["--set", f"name={json.dumps(name)}"]):
        said = distrun.told(65, "launch", spec, *args)
        assert "control character" in said
        assert not re.search(r"[\x1b\x9b\u202e\u2028\x7f]", said)
    spec.write_text(spec.read_text().replace("name: job", f"name: {json.dumps(name)}"))
    said = distrun.told(65, "validate", spec)
    assert re.match(rf"{re.escape(str(spec))}:\d+:\d+: name has a line break", said)


def test_wrong_usage_and_specs_are_told_without_control_characters(distrun: Distrun) -> None:
    odd = "\x9b31m\u202e\x1b[31m\udc9b"
    name = f"a{odd}b"
    spec = distrun.cwd / "odd.yaml"
    commands = [
        *((name,), ("status", name), ("status", f"--{name}"), ("kill", "--signal", name)),
        *(("logs", "--grep", f"({name}"), ("validate", str(spec), "--set", f"{name}=1")),
    ]
    sections: list[Json] = [
        *({"strategy": name}, {"stratgy" + odd: 1}, {"program": {"script": name}}),
        *({"cluster": {"worker": name}}, {"hosts": [name]}),
    ]
    said = []
    for section in sections:
        document = {"name": "job", "strategy": "mirrored", "cluster": {"worker": 1}, **section}
        spec.write_text(json.dumps(document))
        said.append(distrun("validate", spec))
    said += [distrun(*command) for command in commands]
    for done in said:
        assert done.returncode in (2, 65), done.stderr
        assert all(line.isprintable() for line in (done.stdout + done.stderr).split("\n")), done


def test_what_may_never_be_read_is_refused(distrun: Distrun) -> None:
    pipe = distrun.cwd / "pipe.yaml"
    os.mkfifo(pipe)
    told = distrun.told(65, "validate", pipe, timeout=60)
    assert "it is a named pipe, which may have no writer" in told
