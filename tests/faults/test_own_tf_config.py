"""Programs that set TF_CONFIG themselves, in the ways that tests/e2e does not try."""

from pathlib import Path

import pytest

from harness.command import Distrun, Status
from harness.own_tf_config import (
    ANOTHERS_INDEX,
    SAME_INDEX,
    TUTORIAL,
    check_that_the_line_is_named,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("change", "level"), [(TUTORIAL, 3), (ANOTHERS_INDEX, 0), (SAME_INDEX, 0)])
def test_the_job_fails_and_the_line_is_named(
    distrun: Distrun, status: Status, tmp_path: Path, change: str, level: int
) -> None:
    check_that_the_line_is_named(distrun, status, tmp_path, change, level)
