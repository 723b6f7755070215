"""Numbers of the spec: huge, tiny and odd ones are valid, or an error with their position."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrun.codec import from_json, to_json
from distrun.errors import InvalidSpecError, UsageError
from distrun.spec.loader import load
from distrun.spec.model import Spec

SPEC = "name: j\nstrategy: multi_worker_mirrored\ncluster: {worker: 1}\nprogram: {script: x.py}\n"
KEYS = [
    *("cluster.worker", "restart.max", "restart.backoff", "restart.backoff_max"),
    *("restart.reset_after", "restart.min_workers", "restart.host_failures", "spares"),
    *("timeouts.start", "timeouts.run", "timeouts.grace", "timeouts.stall", "timeouts.link"),
    *("logs.max_size", "ssh.port", "ssh.connect_timeout", "tensorboard.port", "slurm.nodes"),
    *("slurm.time", "slurm.mem_per_node", "slurm.cpus_per_task", "slurm.gpus_per_node"),
    *("slurm.signal_before_end", "ports.range", "program.args"),
]
VALUES = [
    *("0", "-1", "-0.0", "1.5", "1e400", "-1e400", ".nan", ".inf", "9" * 400, "1" + "0" * 400),
    *("0x" + "f" * 400, "999999999TB", "999999999.999999999TiB", "9" * 400 + "TB", "-5GB"),
    *("999999999d", "999999999.999999999d", "0.000000001ms", "9" * 400 + "s", "-1s", "nan s"),
    *("2147483648", "4294967296", "9223372036854775808", "true", "null", "1-999999999999"),
]


@pytest.mark.parametrize("key", KEYS)
def test_a_number_is_valid_or_refused_with_its_position(tmp_path: Path, key: str) -> None:
    (tmp_path / "x.py").write_text("")
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    refusals = []
    for value in VALUES:
        try:
            spec = load(str(path), overrides=(f"{key}={value}",))
        except InvalidSpecError as error:
            refusals.append(str(error))
        else:  # a supervisor reads it again, and so does a resume
            assert from_json(Spec, json.loads(json.dumps(to_json(spec), allow_nan=False))), value
    assert [each for each in refusals if key.partition(".")[0] not in each] == []


def test_a_script_that_is_larger_than_any_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "x.py").open("w") as script:
        script.truncate(1 << 40)
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    with pytest.raises(InvalidSpecError, match=r"job.yaml:4:19: .*x.py' is larger than 100 MB"):
        load(str(path))


def test_a_link_that_leads_to_no_file_is_told_as_that(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.symlink_to("none")
    with pytest.raises(UsageError, match="a link that leads to no file"):
        load(str(path))
