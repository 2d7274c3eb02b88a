"""Whether the state of a checkpoint fits an algorithm: of the same networks, optimizers and filters, and whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from reef.errors import CheckpointError, DamagedCheckpointError
from reef.learn.learners import Learners
from reef.nn.architecture import another_network
from reef.rollout.worker import RolloutWorker
from reef.run.checkpoint.models import weights_of
from reef.run.metrics import COUNTER_FIELDS
from reef.trees import USE_ANOTHER, require_like
from reef.types import PolicyId, State

COUNTS = ("iteration", "policy_version")  # the counts of a state that are in no mapping of its own


def check_fit(state: State, learners: Learners, worker: RolloutWorker) -> None:
    """Raise `CheckpointError` unless the state of an algorithm is whole, and fits these learners and this worker."""
    own = {
        # one that did not learn before goes on from its weights
        "learners": {name: one for name, one in learners.state().items() if name not in state.get("fixed", {})},
        "worker": worker.state(),
        "networks": {name: policy.architecture() for name, policy in worker.policy_map.items()},
    }
    if missing := [name for name in own["learners"] if name not in state["learners"] and is_left_out(state, name)]:
        raise CheckpointError(
            f"policy {missing[0]!r} is to learn and is not in the checkpoint, which checkpoint_trainable_policies_only "
            "left without policies that did not learn. Leave it out of policies_to_train."
        )
    check_outline(state, own)
    for policy_id, network in own["networks"].items():
        outline = state.get("networks", {}).get(policy_id)  # older ones have none
        if outline and (problem := another_network(outline, network)):
            raise CheckpointError(f"the checkpoint does not fit: {problem}, or train from scratch.")
        trained = own["learners"].get(policy_id, {"optimizers": {}})
        if others := [*_other_optimizers(state["learners"].get(policy_id, {}), trained)]:
            raise CheckpointError(f"the checkpoint does not fit: {others[0]}, or train from scratch.")
        here = worker.runners[policy_id].policy.flat.vector.numel()
        if (there := next((own.size for own in weights_of(state, [policy_id]).values()), here)) != here:
            raise CheckpointError(
                f"the checkpoint does not fit: its network has {there} weights, this one has {here}. "
                "Give one of the same environment spaces and model settings."
            )
        seen, sees = (bool(one["filters"][policy_id]) for one in (state["workers"]["local"], own["worker"]))
        if seen != sees:
            before = "MeanStdFilter" if seen else "NoFilter"
            raise CheckpointError(
                f"the checkpoint does not fit: its network learned with observation_filter={before!r}, and "
                f"observation_filter={worker.config.observation_filter!r} would show it other observations. "
                f"Set observation_filter={before!r}, or train from scratch."
            )
    check_content(state, own)


def is_left_out(state: State, policy_id: PolicyId) -> bool:
    """Whether `checkpoint_trainable_policies_only` left a policy out of a checkpoint."""
    networks = state.get("networks")
    return isinstance(networks, Mapping) and policy_id in networks and policy_id not in weights_of(state, [policy_id])


def _other_optimizers(stored: State, own: State) -> Iterator[str]:
    for name, optimizer in own["optimizers"].items():
        kind = stored.get("optimizers", {}).get(name, {}).get("type", optimizer["type"])
        if kind != optimizer["type"]:
            yield f"it was trained with optimizer.type={kind!r}, not {optimizer['type']!r}. Set the former"


def check_outline(state: State, own: State) -> None:
    """Raise `CheckpointError` unless every part of an algorithm's state is there, of the right kind."""
    learners = {
        policy_id: {"weights": np.zeros(0, np.float32), "optimizers": {key: {} for key in learner["optimizers"]}}
        for policy_id, learner in own["learners"].items()
    }
    outline = {
        "iteration": 0,
        "policy_version": 0,
        "counters": dict.fromkeys(COUNTER_FIELDS, 0),
        "metrics": {"counters": {}},
        "learners": learners,
        "workers": {"local": {"filters": {name: {} for name in own["worker"]["filters"]}}, "remote": []},
        "evaluation": {"latest": None, "workers": None},
        "networks": {policy_id: {name: {} for name in network} for policy_id, network in own["networks"].items()},
    }
    require_like(state, outline, "", lengths=False, optional=("networks",))
    places = {"": state, "counters/": state["counters"], "metrics/counters/": state["metrics"]["counters"]}
    counts = {f"{place}{key}": found[key] for place, found in places.items() for key in found if place or key in COUNTS}
    for key, value in counts.items():
        if type(value) is not int or not 0 <= value < 2**63:
            raise DamagedCheckpointError(f"{key} is {value!r}, expected a whole number, 0 or more. {USE_ANOTHER}")


def check_content(state: State, own: State) -> None:
    """Compare what `check_outline` let pass, key by key and array by array.

    What may differ in length, such as the number of environments or of workers, is left to the parts that restore it.
    """
    require_like(state["learners"], own["learners"], "learners", optional=LATER)
    _check_workers(state["workers"], own["worker"], "workers")
    if (latest := state["evaluation"]["latest"]) is not None:
        require_like(latest, {}, "evaluation/latest")
    if (workers := state["evaluation"]["workers"]) is not None:
        _check_workers(workers, own["worker"] | {"env": None}, "evaluation/workers")


# what a learner may begin with anew, because the checkpoint is older or was written with other settings
LATER = ("max_exp_avg_sq", "steps", "curiosity", "re3")
# what a runner holds of its exploration and of episodes in progress, which may be other ones
OF_EPISODES: State = {"exploration": {}, "obs": None}


def _check_workers(stored: Any, own: State, key: str) -> None:
    """`stored`: of a set of workers; `own`: of one here, which may have other environments."""
    require_like(stored, {"local": {}, "remote": []}, key)
    remote = {f"{key}/remote/{index}": one for index, one in enumerate(stored["remote"]) if one is not None}
    for name, one in {f"{key}/local": stored["local"], **remote}.items():
        runners = {policy_id: runner | OF_EPISODES for policy_id, runner in own["runners"].items()}
        require_like(one, own | {"runners": runners, "env": None}, name, lengths=False)
        require_like(one["filters"], own["filters"], f"{name}/filters")
        for policy_id, observed in one["filters"].items():
            for stat, values in observed.items():
                if np.any(np.asarray(values["m2"]) < 0):
                    place = f"{name}/filters/{policy_id}/{stat}"
                    raise DamagedCheckpointError(f"{place}/m2 holds negative numbers. {USE_ANOTHER}")
        if own["env"] is not None and isinstance(one["env"], Mapping) and one["env"].keys() == own["env"].keys():
            require_like(one["env"], own["env"], f"{name}/env", lengths=False)
        elif one["env"] is not None:
            require_like(one["env"], {}, f"{name}/env")
