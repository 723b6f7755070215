"""`python -m distrun`: the same as the command `distrun`."""

from distrun.cli.main import main

if __name__ == "__main__":
    main()
