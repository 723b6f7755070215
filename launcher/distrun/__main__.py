"""Where the command begins: `distrun`, and `python -m distrun`."""

import signal


def main() -> None:
    """Run the command line; an interrupt ends it silently even while it is still being read."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from distrun.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
