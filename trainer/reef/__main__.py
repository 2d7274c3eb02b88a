"""`python -m reef` and the command `reef`, which ends quietly when Ctrl-C comes while it is being imported."""

from __future__ import annotations

import sys

from reef.errors import EXIT_INTERRUPTED


def main() -> int:
    """Run the command in the process' arguments and return its exit code."""
    try:
        from reef.cli.main import main as run_command

        return run_command()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
