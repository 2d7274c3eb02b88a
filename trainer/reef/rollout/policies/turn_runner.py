"""Runs one policy in the columns of agents that do not act in every step."""

from __future__ import annotations

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.vector import StepResult
from reef.rollout.policies.turn_fragment import TurnFragment
from reef.rollout.policy_runner import PolicyRunner
from reef.trees import require_like
from reef.types import Array, PolicyId, RecurrentState, State


class TurnRunner(PolicyRunner):
    """A `PolicyRunner` whose columns act when their agents are present.

    An action whose result has not come when a fragment ends is the first row of the next one.
    """

    fragment: TurnFragment

    def __init__(self, config: AlgorithmConfig, worker_index: int, columns: Columns, policy_id: PolicyId) -> None:
        """See `PolicyRunner`."""
        super().__init__(config, worker_index, columns, policy_id)
        self.fragment = TurnFragment(self.policy, len(columns.envs), 0, self.own_logp)
        self._held = self.fragment.obs[0]  # [B, *obs] what each agent acts on next, filtered
        self._nothing: Array = np.zeros_like(self.fragment.actions[0])
        self._before = self.policy.initial_state(len(columns.envs))  # the recurrent state before the newest action
        self.newest_actions = self._nothing.copy()
        self.acted_by = np.zeros((len(columns.envs), self.policy.dist_class.num_inputs), np.float32)
        self._open = np.zeros(len(columns.envs), np.bool_)  # whether the result of it has not come yet

    def begin(self, steps: int, first: Array | None = None) -> None:
        """Allocate rows for `steps` steps; with the `first` observations [B, *obs] new episodes start."""
        before, rows = self.fragment, self.fragment.rows
        self.fragment = TurnFragment(self.policy, len(rows), steps, self.own_logp)
        if first is not None:
            self._held = self.filtered(first, self.columns.present, update=True)
            self.recurrent = self.policy.initial_state(len(rows))
            self._open[:] = False
        else:
            assert self.obs is not None, "episodes have begun"
            self._held = self.obs
        if self.episodic is not None:
            self.episodic.begin(new_episodes=first is not None)
        if self._open.any():
            columns = np.flatnonzero(self._open)
            own = rows[columns], columns
            for name in ("obs", "actions", "dist_inputs", "logp"):
                if (array := getattr(self.fragment, name)) is not None:
                    array[0, columns] = getattr(before, name)[own]
            # of the action: a column's first row may be open for the whole of the fragment before
            for name, values in self.fragment.state_in.items():
                values[columns] = self._before[name][columns]
        self.obs = None

    def go_on(self) -> None:
        """Let the next fragment continue where this one ends."""
        self.obs = self._held

    def act(self, t: int, timestep: int) -> Array:
        """The actions [B, *action] of those that are present; the others' are zeros."""
        present = self.columns.present
        assert present is not None
        if not present.any():
            return self._nothing
        self.policy.have_weights()
        before = self.recurrent
        self.exploration.acts_in(present)
        actions, inputs, logp = self.choose(self._held, timestep)
        self.recurrent = _where(present, self.recurrent, before)
        columns = np.flatnonzero(present)
        self.fragment.act(columns, self._held, actions, inputs, logp)
        for name, values in self.fragment.state_in.items():
            first = columns[self.fragment.rows[columns] == 0]
            values[first] = before[name][first]
            self._before[name][columns] = before[name][columns]
        self.newest_actions[columns], self.acted_by[columns] = actions[columns], inputs[columns]
        self._open[columns] = True
        return actions if self.to_env is None else self.to_env(actions)

    def record(self, t: int, result: StepResult, active: Array | None) -> Array | None:
        """End the rows of the columns that are live in `result`, which is not kept in environments that are not active.

        A row whose result never comes, as its episode was cut off without an observation, is masked: the next episode
        does not follow the row before. Returns where rewards count, [B] bool; None: everywhere.
        """
        assert result.live is not None
        self._held = self.filtered(result.obs, self.columns.present, update=True)
        counted = None if active is None else active[self.columns.envs]
        done = result.terminated | result.truncated
        lost = self._open & done & ~result.live
        live = result.live | lost if counted is None else (result.live | lost) & counted
        fragment, columns = self.fragment, np.flatnonzero(live)
        for column, obs in result.final_obs.items():
            if live[column]:
                fragment.finals.append((int(fragment.rows[column]), column, self.filtered(obs[None])[0]))
        fragment.complete(columns, t, result.rewards, result.terminated, result.truncated, self._held)
        fragment.mask[fragment.rows[columns] - 1, columns] = ~lost[columns]
        self._open[result.live | done] = False
        if self.recurrent or self.episodic is not None:
            if self.episodic is not None:
                self.episodic.end_episodes(done)
            after = self.policy.after_step(self.recurrent, self.newest_actions, result.rewards, done)
            self.recurrent = _where(result.live | done, after, self.recurrent)
        return counted

    def state(self) -> State:
        """Everything except the weights and the filter."""
        rows = self.fragment.rows, np.arange(len(self._open))
        waiting: State = {
            "columns": self._open.copy(),
            "obs": self.fragment.obs[rows],
            "actions": self.newest_actions.copy(),
            "before": {name: values.copy() for name, values in self._before.items()},
        }
        if self.fragment.dist_inputs is not None:
            waiting["dist_inputs"] = self.fragment.dist_inputs[rows]
        if self.fragment.logp is not None:
            waiting["logp"] = self.fragment.logp[rows]
        return {**super().state(), "open": waiting}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, except the columns, which start new episodes unless `resume` follows."""
        super().set_state(state)
        self._open[:] = False

    def resume(self, state: State, first: Array, resumed: Array) -> None:
        """Continue from `state` in the columns where `resumed` [B] is True; the others start with `first` [B, *obs]."""
        super().resume(state, first, resumed)
        if self.obs is None:
            return
        waiting, going_on = state["open"], np.flatnonzero(resumed)
        self.fragment = fragment = TurnFragment(self.policy, len(resumed), 0, self.own_logp)
        pairs = [(self._open, waiting["columns"]), (fragment.obs[0], waiting["obs"])]
        pairs += [(self.newest_actions, waiting["actions"]), (fragment.actions[0], waiting["actions"])]
        pairs += [(self._before[name], waiting["before"][name]) for name in self._before]
        if fragment.dist_inputs is not None:
            pairs.append((fragment.dist_inputs[0], waiting["dist_inputs"]))
        if fragment.logp is not None:
            # a checkpoint of before likelihoods were recorded has none
            fragment.logp[0] = np.nan
            pairs.append((fragment.logp[0], waiting.get("logp", fragment.logp[0])))
        for mine, stored in pairs:
            require_like(stored[:0], mine[:0], "open")
            mine[going_on] = stored[going_on]


def _where(columns: Array, new: RecurrentState, old: RecurrentState) -> RecurrentState:
    """`new` in the `columns` [B] where it holds, else `old`."""
    return {name: np.where(columns.reshape(-1, *[1] * (new[name].ndim - 1)), new[name], old[name]) for name in new}
