"""Run the command `leveret` by `python -m leveret`."""

from leveret.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
