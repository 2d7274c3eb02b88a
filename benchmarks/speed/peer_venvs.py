"""The peers' virtual environments: outside the checkout, made when missing."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

FOLDER_VARIABLE = "REEF_BENCH_VENVS"
TORCH = "torch==2.13.0"
# LunarLander, with the build of Box2D that needs no compiler.
BOX2D = ["box2d==2.3.10", "pygame==2.6.1"]
REQUIREMENTS = {
    "rllib": ["ray[rllib]==2.60.0", "msgpack-numpy==0.4.8", *BOX2D, TORCH],
    # Its setuptools still has pkg_resources, its Gymnasium the API that it calls.
    "sample_factory": ["sample-factory==2.1.1", "gymnasium==0.29.1", *BOX2D, "setuptools<81", TORCH],
    "sb3": ["stable-baselines3==2.9.2", "sb3-contrib==2.9.2", TORCH],
    "tianshou": ["tianshou==2.0.1", TORCH],
    "torchrl": ["torchrl==0.14.1", "gymnasium==1.4.0", TORCH],
}


def python_of(peer: str) -> Path:
    """Return the interpreter that runs a peer's scripts: its own; for Reef and the bare loops the one running now."""
    if peer not in REQUIREMENTS:
        return Path(sys.executable)
    folder = Path(os.environ.get(FOLDER_VARIABLE, "~/.cache/reef/bench")).expanduser() / peer
    python, complete = folder / "bin" / "python", folder / "complete"
    wanted = "\n".join(REQUIREMENTS[peer])
    if not complete.exists() or complete.read_text() != wanted:
        print(f"==> Installing {', '.join(REQUIREMENTS[peer])} into {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS[peer]], check=True, timeout=1800)
        complete.write_text(wanted)
    return python
