"""`python -m reef` is the `reef` command."""

from __future__ import annotations

import sys

from reef.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
