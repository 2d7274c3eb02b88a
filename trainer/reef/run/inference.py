"""What a person asks of an algorithm between two iterations: its policies, their actions and weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reef.config import AlgorithmConfig
from reef.learn.learners import Learners
from reef.nn.policies import Policy
from reef.nn.weight_files import read_weights
from reef.rollout.seams import Workers
from reef.types import DEFAULT_POLICY, Array, PolicyId


class Inference(ABC):
    """Acts with the policies of this process and changes their weights.

    Weights that were set in a policy by hand are taken over by the learners with the next iteration or publication.
    """

    config: AlgorithmConfig
    workers: Workers
    learners: Learners
    has_unpublished_weights: bool  # whether the learners have some that the workers have not seen

    @property
    @abstractmethod
    def timestep(self) -> int:
        """Environment steps sampled so far."""

    @abstractmethod
    def publish_weights(self) -> None:
        """Give all workers the learners' weights."""

    def get_policy(self, policy_id: PolicyId = DEFAULT_POLICY) -> Policy:
        """The local worker's copy of a policy; KeyError when there is none of that name."""
        policies = self.workers.local_worker().policy_map
        if policy_id not in policies:
            raise KeyError(f"PolicyID {policy_id!r} not found in PolicyMap; there is {sorted(policies)}")
        return policies[policy_id]

    def compute_single_action(
        self,
        observation: Any,  # a value of the environment's observation space
        state: Sequence[Array] | None = None,  # as the call before returned it; None: an episode begins
        *,
        prev_action: Any = None,  # a value of the action space
        prev_reward: float | None = None,
        explore: bool | None = None,
        policy_id: PolicyId = DEFAULT_POLICY,
        full_fetch: bool = False,
    ) -> Any:  # a value of the environment's action space
        """The action for one observation, filtered and unsquashed as in training.

        With `state` or `full_fetch` returns (action, state, extras): give a recurrent policy the state that it returned
        for the step before. It holds the action that was chosen then; `prev_reward`, and `prev_action` where another
        was taken, are written into it for a policy that reads them. `explore` None means the setting of that name.
        Raises ConfigError for what is no observation, no state or no action.
        """
        self.get_policy(policy_id)
        runner = self.workers.local_worker().runners[policy_id]
        chosen = self.config.explore if explore is None else explore
        found = runner.compute_action(observation, state, self.timestep, chosen, prev_action, prev_reward)
        return found if full_fetch or state is not None else found[0]

    compute_action = compute_single_action

    def get_weights(self) -> dict[PolicyId, dict[str, Array]]:
        """Parameters by policy and name."""
        return {name: policy.get_weights() for name, policy in self.workers.local_worker().policy_map.items()}

    def set_weights(self, weights: dict[PolicyId, dict[str, Array]]) -> None:
        """Overwrite parameters by policy and name, in the learners and all workers; ConfigError where they do not fit.

        The optimizer goes on as it was. Target networks become copies of the new weights.
        """
        for policy_id, named in weights.items():
            self.get_policy(policy_id).set_weights(named)
        self.publish_weights()

    def import_model(
        self, path: str | Path, *, policy_id: PolicyId = DEFAULT_POLICY, names: Mapping[str, str] | None = None
    ) -> None:
        """As `set_weights`, from a safetensors file or a torch `state_dict`, of which no code is run.

        `names` translates names of the file into those of `get_weights()`. Raises CheckpointError for a file that
        cannot be used, ConfigError for weights that do not fit; the algorithm is then as it was.
        """
        self.get_policy(policy_id).import_weights(read_weights(path), names)
        self.publish_weights()

    def _take_over_weights(self) -> None:
        """Have the learners go on from weights that were set in a policy of this process, if any were."""
        policies = self.workers.local_worker().policy_map.values()
        if any(policy.set_by_hand for policy in policies):
            self.learners.set_weights(self.workers.local_worker().get_weights())
            self.has_unpublished_weights = True
            for policy in policies:
                policy.set_by_hand = False
