"""The tests of this folder share the factories of job_objects.py and the server of scripted_server.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from scripted_server import eventually, rig, watch_stream

__all__ = ["eventually", "rig", "watch_stream"]
