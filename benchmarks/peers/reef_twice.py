"""Two trainings of Reef at once, each in one process: what they make together is all that this machine has to give."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.peers.protocol import answer, arguments

COPIES = 2

if __name__ == "__main__":
    ARGS = arguments()
    COMMANDS = [
        [sys.executable, "-m", "benchmarks.peers.reef", json.dumps({**ARGS, "seed": COPIES * ARGS["seed"] + copy})]
        for copy in range(COPIES)
    ]
    PROCESSES = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in COMMANDS]
    OUTPUTS = [process.communicate()[0] for process in PROCESSES]  # of both, before one is found wrong
    ANSWERS = [json.loads(output) for output in OUTPUTS]
    SECONDS = max(each["seconds"] for each in ANSWERS)
    STEPS = sum(each["steps"] / each["seconds"] for each in ANSWERS) * SECONDS
    FIRST = max(each["first_iteration_at"] for each in ANSWERS)
    answer({"steps": STEPS, "seconds": SECONDS, "first_iteration_at": FIRST}, "ray", "torch", "gymnasium")
