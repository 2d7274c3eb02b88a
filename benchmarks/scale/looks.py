"""Time one look at an idle job in process, without an API server: from what is observed to the empty plan."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "operator"))  # factories of observed objects

from job_objects import running_world

from reef.api import RLTrainingJob
from reef_operator.model import Observed, Plan
from reef_operator.reading.situation import Situation
from reef_operator.reconcile import reconcile

CONFIG = {"lr": 3e-4, "gamma": 0.99, "num_envs_per_worker": 8, "model": {"fcnet_hiddens": [64, 64]}}


def main(jobs: int) -> None:
    """Print the CPU time of a look in milliseconds, and how often a look validates a document."""
    world = running_world(config=CONFIG)
    observed = [world.observe() for _ in range(jobs)]
    validations = count_validations(observed[0])
    print(json.dumps({"jobs": jobs, "look_ms": look_ms(observed), "validations": validations}))


def look_ms(observed: list[Observed]) -> float:
    """Return the CPU time of one look, in milliseconds: the mean over all jobs."""
    began = time.process_time()
    plans = [reconcile(Situation(each)) for each in observed]
    seconds = time.process_time() - began
    assert all(map(is_empty, plans)), "an idle job needs nothing"
    return seconds / len(observed) * 1e3


def count_validations(observed: Observed) -> int:
    """Return how often one look validates a document."""
    with patch.object(RLTrainingJob, "model_validate", side_effect=RLTrainingJob.model_validate) as validate:
        reconcile(Situation(observed))
    return validate.call_count


def is_empty(plan: Plan) -> bool:
    """Return whether a plan changes nothing."""
    return not plan.actions and plan.status is None and not plan.events


if __name__ == "__main__":
    main(json.loads(sys.argv[1])["jobs"])
