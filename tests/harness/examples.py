"""How many examples hypothesis tries: all in `make faults`, half in `make test`."""

from hypothesis import HealthCheck, settings

USUAL = 100
HALF = "half"
QUICK = "quick"


def register_profiles() -> None:
    """Make the profiles known, before `--hypothesis-profile` is read."""
    # How long an example takes tells how busy the machine is. Tests that have health checks of
    # their own left out leave out this one as well.
    settings.register_profile(
        "all",
        max_examples=USUAL,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile(QUICK, settings.get_profile("all"), max_examples=USUAL // 5)
    settings.register_profile(HALF, settings.get_profile("all"), max_examples=USUAL // 2)
    settings.load_profile(HALF)


def examples(count: int) -> int:
    """Return `count`, or as much less as the profile in use is below the usual number."""
    assert settings.default is not None
    return int(count * settings.default.max_examples // USUAL)
