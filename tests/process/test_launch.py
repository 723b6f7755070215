"""`distrun launch` in the foreground: output, exit codes, the report, jobs side by side."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.command import Distrun
from harness.processes import alive, survivors
from harness.training import held_port
from harness.values import not_none
from harness.waiting import wait_until


def test_output_has_a_prefix_and_the_exit_code_is_0(distrun: Distrun) -> None:
    done = distrun.launch("echo out $DISTRUN_TASK; echo err >&2")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "worker:0 | err",
        "worker:0 | out worker:0",
        "worker:1 | err",
        "worker:1 | out worker:1",
    ]


def test_tf_config_is_what_tensorflow_reads(distrun: Distrun) -> None:
    with held_port() as first, held_port() as second:
        addresses = [f"localhost:{first}", f"localhost:{second}"]
        spec = distrun.write_spec('echo "$TF_CONFIG"', cluster={"worker": addresses})
        plan = distrun("plan", "--json", spec)
    assert plan.returncode == 0, plan.stderr
    planned = [task["env"]["TF_CONFIG"] for task in json.loads(plan.stdout)["plan"]["tasks"]]
    assert planned == [
        f'{{"cluster": {{"worker": ["localhost:{first}", "localhost:{second}"]}}, '
        f'"task": {{"type": "worker", "index": {index}}}}}'
        for index in (0, 1)
    ]


def test_tasks_get_the_plan(distrun: Distrun) -> None:
    done = distrun.launch('echo "$TF_CONFIG $DISTRUN_ATTEMPT $DISTRUN_STRATEGY"', 3)
    configs = {}
    for line in done.stdout.splitlines():
        prefix, text = line.split(" | ", 1)
        config, attempt, strategy = not_none(re.fullmatch(r"(\{.*\}) (\d) (\w+)", text)).groups()
        assert (attempt, strategy) == ("0", "multi_worker_mirrored")
        configs[prefix] = json.loads(config)
    assert set(configs) == {"worker:0", "worker:1", "worker:2"}
    clusters = [config["cluster"] for config in configs.values()]
    assert clusters[0] == clusters[1] == clusters[2]
    assert len(set(clusters[0]["worker"])) == 3
    assert configs["worker:2"]["task"] == {"type": "worker", "index": 2}


def test_a_failure_is_the_exit_code_and_the_report_names_it(distrun: Distrun) -> None:
    spec = distrun.write_spec(
        "touch up-$DISTRUN_TASK; test $DISTRUN_TASK = worker:1 || exec sleep 600; "
        "until test -e up-worker:0 && test -e up-worker:2; do sleep 0.02; done; "
        'echo "no data"; exit 3',
        3,
    )
    done = distrun("launch", spec)
    assert done.returncode == 3
    report = done.stderr
    assert re.search(
        r"job job-\w+ failed: worker:1 on localhost \(pid \d+\) at \d\d:\d\d:\d\d\n", report
    )
    assert "  cause         worker:1 exited 3 by itself (exit)\n" in report
    assert "  evidence      worker:1, its log, line 1: no data\n" in report
    assert report.count("no data") == report.count("exited 3") == 1
    assert "  also stopped  worker:0, worker:2\n" in report
    assert re.search(r"logs          /.*/logs", report)
    assert report.splitlines()[-1] == "distrun: exit code 3, worker:1's own"
    job = distrun.status()
    assert (job["state"], job["exit_code"], job["origin"]) == ("failed", 3, "task")


def test_a_signal_is_128_more_and_named(distrun: Distrun) -> None:
    done = distrun.launch("[ $DISTRUN_TASK = worker:1 ] && kill -9 $$; sleep 600")
    assert done.returncode == 137
    assert "worker:1 was killed by SIGKILL" in done.stderr


def test_a_program_that_is_not_there(distrun: Distrun) -> None:
    spec = distrun.write_spec("", program={"command": ["no-such-program"]})
    for options in ((), ("--detach",)):
        done = distrun("launch", spec, *options)
        assert done.returncode == 69
        assert "there is no program 'no-such-program' in PATH" in done.stderr
        assert done.stdout == ""
    assert distrun.status()["origin"] == "distrun"


def test_a_taken_port_is_named_before_anything_starts(distrun: Distrun) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        spec = distrun.write_spec(
            "touch started", cluster={"worker": [f"localhost:{port}", "localhost:1025"]}
        )
        done = distrun("launch", spec)
    assert done.returncode == 69
    assert f"port {port} on localhost is taken" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert not (distrun.cwd / "started").exists()


def test_eight_sleepers_are_gone_once_a_failure_is_told(distrun: Distrun) -> None:
    spec = distrun.write_spec(
        "touch up-$DISTRUN_TASK; test $DISTRUN_TASK = worker:8 || exec sleep 600; "
        "until test $(ls | grep -c up-) = 9; do sleep 0.02; done; exit 1",
        9,
    )
    done = distrun("launch", spec)
    assert done.returncode == 1
    job_id = not_none(re.search(r"job (\S+):", done.stderr))[1]
    assert survivors(job_id) == []


def test_success_needs_all_workers(distrun: Distrun) -> None:
    spec = distrun.write_spec("[ $DISTRUN_TASK = worker:0 ] && exit 0; sleep 0.3; exit 5")
    assert distrun("launch", spec).returncode == 5


def test_what_a_task_leaves_behind_does_not_keep_the_job(distrun: Distrun) -> None:
    done = distrun.launch("setsid sleep 600 & sleep 600 & exit 0")
    assert done.returncode == 0


def test_cat_sees_the_end_of_its_input(distrun: Distrun) -> None:
    done = distrun("launch", distrun.write_spec("cat; echo over"), stdin=subprocess.PIPE)
    assert sorted(done.stdout.splitlines()) == ["worker:0 | over", "worker:1 | over"]


def test_bytes_survive_in_the_log_and_all_but_nul_where_they_are_shown(distrun: Distrun) -> None:
    """Lines are shown without NUL, as without ESC; `logs --raw` keeps every byte."""
    spec = distrun.write_spec(r"printf '\377\000x\303\n'; printf 'no end'", 1)
    done = distrun("launch", spec, text=False)
    assert done.stdout == b"worker:0 | \xffx\xc3\nworker:0 | no end\n"
    assert distrun("logs", "--raw", text=False).stdout == b"\xff\x00x\xc3\nno end"


def test_no_reader_ends_the_job(distrun: Distrun) -> None:
    launch = distrun.start(
        "launch", distrun.write_spec("while echo line; do sleep 0.01; done"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert not_none(launch.stdout).readline().endswith(b"line\n")
    not_none(launch.stdout).close()
    assert launch.wait(60) == 141
    assert distrun.status()["state"] == "stopped"


def test_a_launch_that_stood_still_to_the_end_tells_how_the_job_ended(distrun: Distrun) -> None:
    """Its supervisor had more to tell than it would wait for; the record has it all."""
    flood = (
        "import os, socket, time\n"
        "open('up', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "notify.connect(chr(0) + os.environ['DISTRUN_NOTIFY'][1:])\n"
        "for number in range(200): notify.send(b'KEY%d=%s' % (number, b'x' * 4000))\n"
    )
    program = {"command": [sys.executable, "-c", flood]}
    launch = distrun.start("launch", distrun.write_spec("", workers=1, program=program))
    wait_until((distrun.cwd / "up").exists, timeout=30)
    supervisor = distrun.status()["supervisor_pid"]
    launch.send_signal(signal.SIGSTOP)
    try:
        (distrun.cwd / "go").touch()
        wait_until(lambda: not alive(supervisor), timeout=60)
    finally:
        launch.send_signal(signal.SIGCONT)
    assert launch.wait(30) == 0


def test_dry_run_starts_nothing(distrun: Distrun) -> None:
    done = distrun("launch", "--dry-run", distrun.write_spec("touch started"))
    assert done.returncode == 0, done.stderr
    assert "worker:1" in done.stdout
    assert not (distrun.cwd / "started").exists()
    assert json.loads(distrun("ps", "-a", "--json").stdout)["jobs"] == []


def test_arguments_after_two_dashes_reach_the_program(distrun: Distrun) -> None:
    spec = distrun.write_spec("", program={"command": ["echo"], "args": ["a"]})
    done = distrun("launch", spec, "--", "--epochs", "3", "two words")
    assert set(done.stdout.splitlines()) == {
        "worker:0 | a --epochs 3 two words",
        "worker:1 | a --epochs 3 two words",
    }


@pytest.mark.parametrize("folder", ['it\'s "here" $(touch x)', "new\nline", "déjà vu"])
def test_hostile_paths_only_name(distrun: Distrun, folder: Path) -> None:
    place = distrun.cwd / folder
    place.mkdir()
    (place / "job.py").write_text(
        "import os, sys; print(os.path.dirname(sys.argv[0]) == os.getcwd())"
    )
    (place / "spec.yaml").write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\n"
        "program: {script: job.py, workdir: .}\nname: 'a/../../b \"$(touch x)'\n"
    )
    home = place / "home"
    done = distrun("launch", place / "spec.yaml", env={**os.environ, "DISTRUN_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["worker:0 | True", "worker:1 | True"]
    assert len(list((home / "jobs").iterdir())) == 1
    assert not list(distrun.cwd.rglob("x"))


@pytest.mark.parametrize("way", [signal.SIG_BLOCK, signal.SIG_IGN])
def test_a_job_ends_although_the_calling_program_suppressed_all_signals(
    way: int, distrun: Distrun
) -> None:
    def suppress() -> None:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        if way == signal.SIG_BLOCK:
            signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        else:
            for number in numbers:
                signal.signal(number, signal.SIG_IGN)

    launch = distrun.start("launch", distrun.write_spec("exit 3"), preexec_fn=suppress)
    assert launch.wait(60) == 3
    launch = distrun.start(
        "launch", distrun.write_spec("touch up; exec sleep 600"), preexec_fn=suppress
    )
    wait_until((distrun.cwd / "up").exists, timeout=30)
    launch.send_signal(signal.SIGTERM)
    assert launch.wait(60) == 143


def test_a_launch_under_nohup_survives_the_hangup(distrun: Distrun) -> None:
    spec = distrun.write_spec("touch up; until test -e go; do sleep 0.02; done", workers=1)
    launch = distrun.start(
        "launch", spec, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_until((distrun.cwd / "up").exists, timeout=30)
    launch.send_signal(signal.SIGHUP)
    (distrun.cwd / "go").touch()
    assert launch.wait(60) == 0


SERVE_AND_CHECK = Path(__file__).parent / "programs" / "meet_peers.py"


def test_ten_jobs_in_parallel_meet_no_stranger(distrun: Distrun) -> None:
    spec = distrun.cwd / "meet.yaml"
    spec.write_text(
        "strategy: multi_worker_mirrored\ncluster: {worker: 2}\n"
        f"program: {{script: {json.dumps(str(SERVE_AND_CHECK))}}}\n"
    )
    launches = [
        distrun.start("launch", spec, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(10)
    ]
    for launch in launches:
        output, _ = launch.communicate(timeout=200)
        assert launch.returncode == 0, output.decode()
        assert output.count(b"met worker:") == 2
