"""How many examples hypothesis tries: all in `make faults`, else a fifth of them."""

import os

os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"  # else it imports trio, where that is installed

from hypothesis import HealthCheck, settings

USUAL = 100
QUICK = "quick"


def register_profiles() -> None:
    """Make the profiles known, before `--hypothesis-profile` is read."""
    # How long an example takes tells how busy the machine is. Tests that have health checks of
    # their own left out leave out this one as well.
    settings.register_profile(
        "all", max_examples=USUAL, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.register_profile(QUICK, settings.get_profile("all"), max_examples=USUAL // 5)
    settings.load_profile(QUICK)


def examples(count: int) -> int:
    """Return `count`, or as much less as the profile in use is below the usual number."""
    assert settings.default is not None
    return int(count * settings.default.max_examples // USUAL)
