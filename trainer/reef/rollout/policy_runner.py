"""Runs one policy in the columns of a worker, and records what happens there as a rollout."""

from __future__ import annotations

import numpy as np

from reef.batch import Rollout
from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.seeding import EVALUATION
from reef.envs.vector import StepResult, check_choices, check_finite, warn_of_bounds
from reef.nn.distributions import ActionDistribution
from reef.nn.make import make_policy
from reef.nn.policies import Policy
from reef.rollout.acting_device import acting_device
from reef.rollout.exploration import ParameterNoise, make_exploration
from reef.rollout.filters import make_filter
from reef.rollout.policies.connectors import action_connector, observation_connector
from reef.trees import require_like
from reef.types import DEFAULT_POLICY, Array, PolicyId, RecurrentState, State


class PolicyRunner:
    """Acts with one policy in its B columns, and records the results.

    It owns everything of the policy on this worker: observation filter, exploration, random generator, and for each
    column the current observation and recurrent state.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int, columns: Columns, policy_id: PolicyId = DEFAULT_POLICY
    ) -> None:
        """Raises ConfigError if the network cannot be made."""
        # The first weights of one that learns come from its learner.
        config = config.for_policy(policy_id)
        # None: nothing is between environments and policy.
        self.to_policy = observation_connector(config, columns.observation_space)
        self.to_env = action_connector(config, columns.action_space)
        if self.to_policy is not None:
            columns = columns._replace(observation_space=self.to_policy.space)
        self.columns = columns
        seed = config.seed
        first = None if config.may_train(policy_id) else seed
        self.policy = make_policy(config, columns.observation_space, columns.action_space, seed=first)
        device = acting_device(config, worker_index, self.policy.multiply_adds * len(columns.envs))
        if device.type != "cpu":
            self.policy.move_to(device)
        if config.torch_compile_worker:
            self.policy.compile_acting(
                backend=config.torch_compile_worker_dynamo_backend, mode=config.torch_compile_worker_dynamo_mode
            )
        self.filter = make_filter(config.observation_filter, self.policy.input_layout)
        self.update_filter = not config.in_evaluation
        self.explores = config.explore
        exploration = self.exploration = make_exploration(config, self.policy.action_layout, worker_index)
        # None: the policy acts by its own weights.
        self.parameter_noise = exploration if self.explores and isinstance(exploration, ParameterNoise) else None
        # whether the likelihood of some actions is not that by the policy's distribution, and is known and recorded
        records = self.explores and "action_logp" in self.policy.acting_extras
        self.own_logp = records and exploration.has_logp and not exploration.follows_policy(0)
        # None: it need not know where episodes end.
        self.episodic = exploration if self.explores and exploration.is_episodic else None
        # 1: a random stream other than the environments'.
        apart = (1, EVALUATION) if config.in_evaluation else (1,)
        self.generator = np.random.default_rng(None if seed is None else [seed, worker_index, *apart])
        # The current fragment, or the last one.
        layout = self.policy.observation_layout
        nothing = np.zeros((len(columns.envs), *layout.shape), layout.dtype)
        self.fragment = Fragment(self.policy, nothing, 0, {}, self.own_logp)
        # [B, *action] of each column, and [B, D] the inputs of the distributions that they were chosen by
        self.newest_actions = self.acted_by = nothing
        # [B, *obs] filtered; None: episodes start with the next fragment.
        self.obs: Array | None = None
        self.recurrent = self.policy.initial_state(len(columns.envs))
        # Of one fragment, in one worker, of the environment's own observations: they need not keep other bounds.
        self._bounds_unchecked = (
            worker_index <= 1
            and self.filter is None
            and self.to_policy is None
            and columns.present is None
            and config.observation_space is None
            and not (config.in_evaluation or config.disable_env_checking)
        )

    def begin(self, steps: int, first: Array | None = None) -> None:
        """Allocate `steps` steps; with the `first` observations [B, *obs] new episodes start in all columns."""
        if first is not None:
            self.obs = self.filtered(first, self.columns.present, update=True)
            self.recurrent = self.policy.initial_state(len(first))
        assert self.obs is not None, "episodes have begun"
        if self.episodic is not None:
            self.episodic.begin(new_episodes=first is not None)
        self.fragment = Fragment(self.policy, self.obs, steps, self.recurrent, self.own_logp)
        self.obs = None

    def go_on(self) -> None:
        """Let the next fragment continue where this full one ends."""
        self.obs = self.fragment.obs[-1]

    def act(self, t: int, timestep: int) -> Array:
        """The actions [B, *action] of step `t`, recorded; `timestep` drives exploration schedules."""
        fragment = self.fragment
        self.newest_actions, self.acted_by, logp = self.choose(fragment.obs[t], timestep)
        fragment.actions[t] = self.newest_actions
        if fragment.logp is not None:
            fragment.logp[t] = logp
        if fragment.dist_inputs is not None:
            fragment.dist_inputs[t] = self.acted_by
        return self.newest_actions if self.to_env is None else self.to_env(self.newest_actions)

    def choose(self, obs: Array, timestep: int) -> tuple[Array, Array, Array | float]:
        """Actions [B, *action], distribution inputs [B, D] and `logp` as in `Fragment`; the recurrent state goes on."""
        explore, generator = self.explores, self.generator
        if (noise := self.parameter_noise) is not None:
            distribution, recorded, self.recurrent = noise.act(self.policy, obs, self.recurrent, timestep, generator)
        else:
            distribution, self.recurrent = self.policy.act(obs, self.recurrent, generator if explore else None)
            recorded = distribution
        actions = self.exploration.choose(distribution, timestep, explore, generator)
        own = self.own_logp and not self.exploration.follows_policy(timestep)
        return actions, recorded.inputs, self.exploration.logp(distribution, actions, timestep) if own else np.nan

    def record(self, t: int, result: StepResult, active: Array | None) -> Array | None:
        """Record the results of step `t`; it is valid in the environments where `active` [E] is True, or in all.

        Returns where its rewards count, [B] bool; None: everywhere.
        """
        fragment = self.fragment
        fragment.obs[t + 1] = self.filtered(result.obs, self.columns.present, update=True)
        fragment.observed = t + 2
        fragment.rewards[t] = result.rewards
        fragment.terminated[t] = result.terminated
        fragment.truncated[t] = result.truncated
        if active is not None:
            fragment.mask[t] = active[self.columns.envs]
        if result.live is not None:
            fragment.mask[t] &= result.live
        for column, obs in result.final_obs.items():
            fragment.finals.append((t, column, self.filtered(obs[None])[0]))
        if self.recurrent or self.episodic is not None:
            done = result.terminated | result.truncated
            if result.live is not None:
                done |= ~result.live  # an agent that joins later starts with an empty state
            if self.episodic is not None:
                self.episodic.end_episodes(done)
            self.recurrent = self.policy.after_step(self.recurrent, fragment.actions[t], result.rewards, done)
        return None if active is None and result.live is None else fragment.mask[t]

    def filtered(self, obs: Array, present: Array | None = None, *, update: bool = False) -> Array:
        """Filter observations [B, *obs], of which those `present` [B] count, None: all; `update` learns from them."""
        if self.to_policy is not None:
            obs = self.to_policy(obs, present)
        if self.filter is None:
            return obs
        update = update and self.update_filter
        if update and present is not None and not present.all():
            if present.any():
                self.filter(obs[present], update=True)
            update = False
        return self.filter(obs, update=update)

    def check(self, env: str) -> None:
        """Raise EnvironmentError for the first invalid value in the fragment: NaN, infinity, or a wrong index."""
        self._check_observations("observations", self.fragment.obs[: self.fragment.observed], env)
        if self._bounds_unchecked:
            self._bounds_unchecked = False
            warn_of_bounds(self.fragment.obs[: self.fragment.observed], self.policy.observation_layout, env)
        acted = max(self.fragment.observed - 1, 0)
        check_finite("rewards", self.fragment.rewards[:acted], env)
        if self.policy.action_mask is not None:
            self.policy.action_mask.check(self.fragment.obs[:acted], self.fragment.mask[:acted], env)

    def check_finals(self, rollout: Rollout, env: str) -> None:
        """Raise EnvironmentError for the first invalid value in the last observations of episodes."""
        if self.fragment.finals:  # otherwise the successors are the observations themselves
            self._check_observations("last observations", rollout.next_obs, env)

    def _check_observations(self, name: str, obs: Array, env: str) -> None:
        check_finite(name, obs, env)
        check_choices(name, obs, self.policy.observation_layout, env)

    def state(self) -> State:
        """Everything except the weights and the filter."""
        return {
            "generator": self.generator.bit_generator.state,
            "exploration": self.exploration.state(),
            "obs": None if self.obs is None else self.obs.copy(),
            "recurrent": {name: values.copy() for name, values in self.recurrent.items()},
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, except the columns, which start new episodes unless `resume` follows."""
        self.generator.bit_generator.state = state["generator"]
        self.exploration.set_state(state["exploration"])
        self.obs = None

    def resume(self, state: State, first: Array, resumed: Array) -> None:
        """Continue from `state` in the columns where `resumed` [B] is True; the others start with `first` [B, *obs]."""
        obs = self.filtered(first, self.columns.present)
        if state["obs"] is None:
            return
        require_like(state["obs"][:0], obs[:0], "obs")
        self.obs = obs.copy()
        self.recurrent = self.policy.initial_state(len(obs))
        going_on = np.flatnonzero(resumed)
        for mine, stored in ((self.obs, state["obs"]), *_pairs(self.recurrent, state["recurrent"])):
            mine[going_on] = stored[going_on]  # the observations, already filtered at that time


def _pairs(own: RecurrentState, stored: RecurrentState) -> list[tuple[Array, Array]]:
    require_like({name: values[:0] for name, values in stored.items()}, {n: v[:0] for n, v in own.items()}, "recurrent")
    return [(own[name], stored[name]) for name in own]


class Fragment:
    """The arrays [T, B, ...] of one fragment, preallocated; `obs` has one step more, for the last successor."""

    def __init__(
        self,
        policy: Policy,
        first: Array,  # [B, *obs] the first observations, filtered
        steps: int,
        state_in: RecurrentState,
        own_logp: bool = False,  # whether log-likelihoods are written
    ) -> None:
        """Allocate `steps` steps; `grow` allocates more."""
        obs, action, columns = policy.observation_layout, policy.action_layout, len(first)
        self.obs = np.empty((steps + 1, columns, *obs.shape), obs.dtype)
        self.actions = np.empty((steps, columns, *action.shape), action.action_dtype)
        self.rewards = np.empty((steps, columns), np.float32)
        self.terminated = np.empty((steps, columns), np.bool_)
        self.truncated = np.empty((steps, columns), np.bool_)
        self.mask = np.ones((steps, columns), np.bool_)
        self.dist_class, self.dist_inputs = policy.dist_class, None
        self.needs_logp = "action_logp" in policy.acting_extras
        if "action_dist_inputs" in policy.acting_extras:
            self.dist_inputs = np.empty((steps, columns, policy.dist_class.num_inputs), np.float32)
        # [T, B] of the actions, NaN: by the distribution; None: all are
        self.logp = np.empty((steps, columns), np.float32) if own_logp else None
        self.finals: list[tuple[int, int, Array]] = []  # (step, column, true successor)
        self.state_in = {name: values.copy() for name, values in state_in.items()}
        self.obs[0] = first
        self.observed = 1  # number of steps whose observations are written

    @property
    def capacity(self) -> int:
        """Number of allocated steps."""
        return len(self.rewards)

    def is_full(self, steps: int) -> bool:
        """Whether there is no room for another step after these."""
        return steps == self.capacity

    def parts(self, column: int, first: int, end: int) -> list[slice]:
        """The valid steps of a column from `first` to `end`, as slices without a gap."""
        valid = first + np.flatnonzero(self.mask[first:end, column])
        runs = np.split(valid, np.flatnonzero(np.diff(valid) > 1) + 1)
        return [slice(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)]

    def grow(self) -> None:
        """Double the capacity, keeping the written steps."""
        room = self.capacity
        for name in ("obs", "actions", "rewards", "terminated", "truncated", "mask", "dist_inputs", "logp"):
            array = getattr(self, name)
            if array is not None:
                more = np.ones if name == "mask" else np.empty
                setattr(self, name, np.concatenate([array, more((room, *array.shape[1:]), array.dtype)]))

    def rollout(self, steps: int, policy_version: int) -> Rollout:
        """The first `steps` steps as a rollout by this policy version."""
        next_obs = self.obs[1 : steps + 1]
        if self.finals:
            next_obs = next_obs.copy()
            for t, column, obs in self.finals:
                next_obs[t, column] = obs
        return Rollout(
            obs=self.obs[:steps],
            actions=self.actions[:steps],
            rewards=self.rewards[:steps],
            next_obs=next_obs,
            terminated=self.terminated[:steps],
            truncated=self.truncated[:steps],
            mask=self.mask[:steps],
            extras=self._extras(steps),
            state_in=self.state_in,
            policy_version=policy_version,
        )

    def _extras(self, steps: int) -> dict[str, Array]:
        """What the policy returned when it acted; log-likelihoods are computed for all steps at once."""
        if self.dist_inputs is None:
            return {}
        inputs, actions = self.dist_inputs[:steps], self.actions[:steps]
        if not self.needs_logp:
            return {"action_dist_inputs": inputs}
        distribution = ActionDistribution(self.dist_class, inputs.reshape(-1, inputs.shape[-1]))
        logp = distribution.logp(actions.reshape(-1, *actions.shape[2:])).reshape(inputs.shape[:2])
        if self.logp is not None:
            logp = np.where(np.isnan(self.logp[:steps]), logp, self.logp[:steps])
        return {"action_dist_inputs": inputs, "action_logp": logp}
