"""Exploration with noise on the weights that act."""

from __future__ import annotations

import copy
import math
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch

from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution, Categorical
from reef.nn.fast import fast_actor
from reef.nn.policies import Policy
from reef.rollout.exploration.arguments import check
from reef.rollout.exploration.discrete import EpsilonGreedy
from reef.rollout.exploration.noise import GaussianNoise
from reef.rollout.exploration.sub_exploration import WithSubExploration
from reef.types import Array, RecurrentState, State

# The factor by which the standard deviation changes (alpha in section C of the paper), and after how many steps.
ADAPTATION, ADAPT_EVERY = 1.01, 50


@dataclass
class ParameterNoise(WithSubExploration):
    """Gaussian noise on the acting weights, which stays the same for a whole episode (Plappert et al. 2018).

    Each environment has noise of its own. The first `random_timesteps` are uniformly random; then `sub_exploration`
    chooses actions by the noisy weights. The noise's standard deviation begins with `initial_stddev` and is adapted:
    the actions of noisy and true weights are to differ as much as those of `sub_exploration` with and without
    exploring, measured by the KL divergence with EpsilonGreedy, and by the mean distance with GaussianNoise and
    OrnsteinUhlenbeckNoise.
    """

    _: KW_ONLY
    initial_stddev: float = 1.0
    random_timesteps: int = 10_000
    # [B, P] the noise on the acting weights of each column; [B] bool: new noise is due
    noise: Array = field(default_factory=lambda: np.zeros((0, 0), np.float32), init=False)
    due: Array = field(default_factory=lambda: np.zeros(0, np.bool_), init=False)
    # of each column, with its noise
    policies: list[Policy] = field(default_factory=list, init=False, repr=False)
    # whether these have older weights than the policy
    outdated: bool = field(default=True, init=False)
    # the distance since the last adaptation, summed over so many steps
    distance: float = field(default=0.0, init=False)
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check("initial_stddev", self.initial_stddev, 0.0)
        check("random_timesteps", self.random_timesteps, 0)
        if not isinstance(self.sub, EpsilonGreedy | GaussianNoise):
            raise ConfigError(
                f"exploration_config.type 'ParameterNoise' with sub_exploration {type(self.sub).__name__!r}: its noise "
                "is fitted to that of EpsilonGreedy, GaussianNoise or OrnsteinUhlenbeckNoise. Set "
                "sub_exploration.type to one of these, with DQN, SimpleQ, DDPG, TD3, Ape-X, SAC or TQC; others "
                "learn as if their own weights had acted."
            )
        self.stddev = float(self.initial_stddev)

    @property
    def has_logp(self) -> bool:
        """No: it would be over all noises that could have been drawn."""
        return False

    def follows_policy(self, timestep: int) -> bool:
        """No: other weights act."""
        return False

    @property
    def is_episodic(self) -> bool:
        """Yes."""
        return True

    def begin(self, *, new_episodes: bool) -> None:
        """Take the newest weights; new noise is due where all columns have new episodes."""
        super().begin(new_episodes=new_episodes)
        self.outdated = True
        if new_episodes:
            self.due[:] = True

    def end_episodes(self, done: Array) -> None:
        """Let the columns where `done` [B] is True act with new noise from the next step on."""
        super().end_episodes(done)
        self.due |= done

    def act(
        self, policy: Policy, obs: Array, state: RecurrentState, timestep: int, generator: np.random.Generator
    ) -> tuple[ActionDistribution, ActionDistribution, RecurrentState]:
        """Return the distributions by the noisy and by the true weights, and the state after the noisy ones."""
        self._update(policy, len(obs), generator)
        acted = [
            own.act(obs[row : row + 1], {name: values[row : row + 1] for name, values in state.items()})
            for row, own in enumerate(self.policies)
        ]
        noisy = ActionDistribution(policy.dist_class, np.concatenate([each.inputs for each, _ in acted]))
        after = {name: np.concatenate([each[name] for _, each in acted]) for name in acted[0][1]}
        true, _ = policy.act(obs, state)
        self._adapt(true, noisy, timestep)
        return noisy, true, after

    def act_once(
        self, policy: Policy, obs: Array, state: RecurrentState, generator: np.random.Generator
    ) -> tuple[ActionDistribution, RecurrentState]:
        """Act on observations [N, *obs] that belong to no column, with the noise of the first column."""
        if not len(self.noise):
            self._update(policy, 1, generator)
        self.policies[0].load_acting_weights(policy.acting_weights() + self.noise[0])
        return self.policies[0].act(obs, state)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return the actions of `sub`; uniformly random ones at the start."""
        if timestep >= self.random_timesteps:
            return super().explore(distribution, timestep, generator)
        return self.actions.uniform(distribution, generator)

    def info(self, timestep: int) -> dict[str, float]:
        """Return the standard deviation of the noise, on a worker that has acted, and the values of `sub`."""
        return super().info(timestep) | ({"cur_stddev": self.stddev} if len(self.noise) else {})

    def state(self) -> State:
        """Return the noise, its standard deviation and the distance measured so far."""
        own = {"noise": self.noise.copy(), "due": self.due.copy(), "stddev": self.stddev}
        return super().state() | own | {"distance": self.distance, "steps": self.steps}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        if "noise" in state:  # else the checkpoint is of another exploration
            self.noise, self.due = np.array(state["noise"], np.float32), np.array(state["due"], np.bool_)
            self.stddev, self.distance, self.steps = state["stddev"], state["distance"], state["steps"]
            self.outdated = True

    def _update(self, policy: Policy, columns: int, generator: np.random.Generator) -> None:
        """Draw the noise that is due, and give it to the policies of the columns."""
        if not (self.outdated or self.due.any()):
            return
        weights = policy.acting_weights()
        if self.noise.shape != (columns, len(weights)):
            self.noise, self.due = np.zeros((columns, len(weights)), np.float32), np.ones(columns, np.bool_)
        while len(self.policies) < columns:
            self.policies.append(_copy_of(policy))
        for column in np.flatnonzero(self.due).tolist():
            self.noise[column] = self.stddev * generator.standard_normal(len(weights), np.float32)
        for column in range(columns) if self.outdated else np.flatnonzero(self.due).tolist():
            self.policies[column].load_acting_weights(weights + self.noise[column])
        self.due[:], self.outdated = False, False

    def _adapt(self, true: ActionDistribution, noisy: ActionDistribution, timestep: int) -> None:
        """Every `ADAPT_EVERY` steps, make the noise larger or smaller."""
        sub, discrete = self.sub, isinstance(self.sub, EpsilonGreedy)
        self.distance += mean_kl(true.inputs, noisy.inputs) if discrete else mean_distance(true, noisy)
        self.steps += 1
        if self.steps == ADAPT_EVERY:
            if isinstance(sub, EpsilonGreedy):
                target = kl_of_epsilon(sub.epsilon(timestep), true.inputs.shape[1])
            else:
                assert isinstance(sub, GaussianNoise), "refused otherwise"
                target = sub.deviation(timestep)
            self.stddev *= ADAPTATION if self.distance / self.steps < target else 1 / ADAPTATION
            self.distance, self.steps = 0.0, 0


def kl_of_epsilon(epsilon: float, actions: int) -> float:
    """The KL divergence of an epsilon-greedy policy from the greedy one (section C.1 of the paper)."""
    return -math.log(max(1.0 - epsilon + epsilon / actions, 1e-6))


def mean_kl(logits: Array, others: Array) -> float:
    """KL(softmax(logits) || softmax(others)), the mean over the rows [N, A]."""
    one, other = (Categorical(torch.from_numpy(each).double()) for each in (logits, others))
    return float(one.kl(other).mean())


def mean_distance(one: ActionDistribution, other: ActionDistribution) -> float:
    """The root of the mean squared difference of the deterministic actions (section C.2 of the paper)."""
    return float(np.sqrt(np.square(one.deterministic() - other.deterministic()).mean()))


def _copy_of(policy: Policy) -> Policy:
    """A policy with parameters of its own."""
    with torch.inference_mode(False):  # which workers act in: its tensors could not be changed outside of it
        copied = copy.deepcopy(policy)
    vars(copied).pop("dist_inputs", None)  # compiled, it would act by the weights of the policy
    copied.fast_actor = fast_actor(copied)
    return copied
