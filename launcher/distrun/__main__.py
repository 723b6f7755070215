"""Entry point of `distrun` and `python -m distrun`."""

import signal


def main() -> None:
    """Run the command line. Ctrl-C while it is being imported ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from distrun.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
