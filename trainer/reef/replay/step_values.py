"""The values of the steps of a rollout, from which replay computes its first priorities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from reef.batch import Rollout, cut_ends


def with_step_values(rollout: Rollout, policy: Any) -> Rollout:
    """The rollout with the extras `STEP_VALUES` [T, B] of reef.replay.n_step, by the weights that acted.

    `policy`: one with `acted_values` and `state_values`, which only those successors need that it has not acted on.
    """
    if not rollout.shape[0]:  # no agent has acted by this policy
        return rollout
    cut = cut_ends(rollout)
    with torch.inference_mode():
        q_values, values = policy.acted_values(rollout)
        after_cuts = policy.state_values(torch.as_tensor(rollout.next_obs[cut], device=policy.device)).cpu().numpy()
    next_values = np.zeros_like(values)
    next_values[:-1] = values[1:]
    next_values[cut] = after_cuts
    return replace(rollout, extras={"q_values": q_values, "next_values": next_values})
