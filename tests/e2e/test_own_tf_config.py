"""A program that sets TF_CONFIG itself: its workers do not wait for each other in silence.

tests/process/test_cluster_mismatch.py does it in other ways, without TensorFlow, and
tests/faults/test_own_tf_config.py with it.
"""

from pathlib import Path

import pytest

from harness.command import Distrun, Status
from harness.own_tf_config import TUTORIAL, check_that_the_line_is_named

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_the_job_fails_and_the_line_is_named(
    distrun: Distrun, status: Status, tmp_path: Path
) -> None:
    check_that_the_line_is_named(distrun, status, tmp_path, TUTORIAL, level=0)
