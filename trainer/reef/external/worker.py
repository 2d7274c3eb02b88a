"""The rollout worker whose steps come from applications."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from reef.batch import Rollout, Sample, concat_columns
from reef.config import AlgorithmConfig
from reef.config.groups.inputs import POLICY_SERVER, IOContext
from reef.config.loading import load_function
from reef.errors import ConfigError, PolicyServerError, nearest
from reef.external.episodes.episode import LONGEST, Played
from reef.external.episodes.steps import RecordedSteps
from reef.external.policies import PoliciesOfApplications
from reef.external.server_input import PolicyServerInput
from reef.math.running import RunningStat
from reef.nn.recurrent import with_sampled_rewards
from reef.rollout.policy_runner import Fragment, PolicyRunner
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

T = TypeVar("T")


class ExternalWorker(RolloutWorker):
    """Samples what applications play; it steps no environment.

    It shares its policy with the server's thread: whichever uses it holds the lock.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int = 0, *, with_env: bool = True, recreated: bool = False
    ) -> None:
        """Without `with_env` it only holds the policy; otherwise its server begins to listen.

        Raises ConfigError for an input that cannot be made, OSError where its port is in use.
        """
        super().__init__(config, worker_index, with_env=False, recreated=recreated)
        self.lock = threading.RLock()
        self._check_policy()
        self.source: PolicyServerInput | None = None
        if with_env:
            self.source = make_input(IOContext(config, worker_index, self))
            self._check_time()
            length = LONGEST if config.batch_mode == "complete_episodes" else self.fragment_length
            self.source.serve(
                PoliciesOfApplications(config, self.runners, self.lock, self.published, length, worker_index)
            )

    def _check_policy(self) -> None:
        """Raise ConfigError for what an application that begins and ends episodes as it likes cannot act with."""
        if any(runner.parameter_noise is not None for runner in self.runners.values()):
            raise ConfigError(
                "exploration_config.type='ParameterNoise': not available with a policy server, as its noise belongs to "
                "the episodes of one environment. Use another exploration."
            )
        for policy_id, runner in self.runners.items():
            if runner.own_logp and self.config.may_train(policy_id):
                raise ConfigError(
                    f"exploration_config of policy {policy_id!r}: applications play with the likelihoods of its own "
                    "distribution alone. Use 'StochasticSampling' with random_timesteps=0."
                )

    def _check_time(self) -> None:
        """Raise ConfigError where the driver would take an idle worker for one that hangs."""
        assert self.source is not None
        limit_s = self.config.sample_timeout_s
        if self.worker_index > 0 and self.source.idle_timeout >= limit_s:
            self.source.stop()
            raise ConfigError(
                f"idle_timeout={self.source.idle_timeout:g} of the policy server, sample_timeout_s={limit_s:g}: a "
                "rollout worker whose applications are idle would count as failed. Make sample_timeout_s larger."
            )

    def published(self) -> tuple[int, int]:
        """Version of the weights, and environment steps so far."""
        return self.policy_version, self.timestep

    def sample(self, steps: int | None = None, reset_episodes: bool = False, episodes: int | None = None) -> Sample:
        """At least `steps` (default `fragment_length`), in fragments of episodes, see `as_rollout`.

        Fewer, or none, where applications do not play as many within the server's `idle_timeout`. Raises
        PolicyServerError where the server failed.
        """
        assert self.source is not None, "it has a server"
        if self._posted:
            self.set_acting_weights(*self._posted.pop())
        self._begun_and_ended += 1
        started = time.perf_counter()
        count: Callable[[Played], int] = len if self.config.count_steps_by == "agent_steps" else _env_steps
        played = self.source.queue.take(steps or self.fragment_length, self.source.idle_timeout, count)
        self.source.check()
        fragments: dict[PolicyId, list[RecordedSteps]] = {}
        for each in played:
            for fragment in each.fragments:
                fragments.setdefault(fragment.policy_id, []).append(fragment)
        self._begun_and_ended += 1
        rollouts = {policy_id: as_rollout(self.runners[policy_id], own) for policy_id, own in fragments.items()}
        if "on_sample_end" in self.hooks:
            rollouts = {policy_id: with_sampled_rewards(own) for policy_id, own in rollouts.items()}
        sample = Sample(
            rollouts,
            [each.episode for each in played if each.episode is not None],
            env_steps=sum(map(_env_steps, played)),
            progress=sum(map(count, played)),
            worker_index=self.worker_index,
            timers={"sample": time.perf_counter() - started},
        )
        if "on_sample_end" in self.hooks and played:
            self.hooks.call("on_sample_end", worker=self, samples=sample)
        return sample

    def apply(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `fn(worker, *args, **kwargs)` in this worker's process, between two answers of the server."""
        with self.lock:
            return super().apply(fn, *args, **kwargs)

    def state(self) -> State:
        """Everything except the weights: random generators, filters, exploration."""
        with self.lock:
            return super().state()

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, between two answers; episodes that are open belong to the run before."""
        with self.lock:
            super().set_state(state)
        if self.source is not None:
            self.source.drop_episodes()

    def set_weights(self, weights: Weights, version: int = 0, timestep: int = 0) -> None:
        """Set the published weights, between two answers of the server."""
        with self.lock:
            super().set_weights(weights, version, timestep)

    def load_acting_weights(self, weights: Weights) -> None:
        """Likewise."""
        with self.lock:
            super().load_acting_weights(weights)

    def set_acting_weights(self, weights: Weights, version: int, timestep: int) -> None:
        """Likewise."""
        with self.lock:
            super().set_acting_weights(weights, version, timestep)

    def filter_deltas(self) -> dict[PolicyId, RunningStat]:
        """The filters' statistics since the last call, with no observation counted twice or lost."""
        with self.lock:
            return super().filter_deltas()

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Replace the observation statistics, between two answers of the server."""
        with self.lock:
            super().set_filters(filters)

    def stop(self) -> None:
        """Stop listening."""
        if self.source is not None:
            self.source.stop()
        super().stop()


def make_input(context: IOContext) -> PolicyServerInput:
    """What the setting `input_` makes; ConfigError where that is no `PolicyServerInput`."""
    given = context.config.input_
    if given == POLICY_SERVER:
        return _server_of(context)
    found = load_function(given, "input_", "ioctx")(context)
    if not isinstance(found, PolicyServerInput):
        raise ConfigError(f"input_={given!r} returned {found!r}: expected a reef.PolicyServerInput.")
    return found


def _server_of(context: IOContext) -> PolicyServerInput:
    """The server with the arguments in `input_config`; of several workers the ports follow each other."""
    arguments: dict[str, Any] = {"address": "127.0.0.1", "port": 9900} | context.input_config
    known = [*inspect.signature(PolicyServerInput).parameters][1:]
    if unknown := [name for name in arguments if name not in known]:
        raise ConfigError(
            f"input_config={context.input_config}: PolicyServerInput takes no {unknown[0]!r}."
            f"{nearest(unknown[0], known)} It takes {', '.join(known)}."
        )
    if arguments["port"] and type(arguments["port"]) is int:
        arguments["port"] += max(context.worker_index - 1, 0)
    try:
        return PolicyServerInput(context, **arguments)
    except OSError as error:
        address, port = arguments["address"], arguments["port"]
        raise PolicyServerError(
            f"input_config: cannot listen at {address}:{port}: {error.strerror}. Give another port or address."
        ) from error


def _env_steps(played: Played) -> int:
    return played.env_steps


def as_rollout(runner: PolicyRunner, fragments: Sequence[RecordedSteps]) -> Rollout:
    """Fragments [T_i] of several episodes as columns [T, B] of fragments one after the other.

    A column has a memory given before its first step alone, so that a fragment that begins with one begins a column.
    """
    columns: list[list[RecordedSteps]] = []
    for fragment in fragments:
        if not columns or any(values.any() for values in fragment.state_in.values()):
            columns.append([])
        columns[-1].append(fragment)
    return concat_columns([one_after_the_other(runner, each) for each in columns])


def one_after_the_other(runner: PolicyRunner, fragments: Sequence[RecordedSteps]) -> Rollout:
    """Fragments [T_i] of several episodes as one rollout [T, 1], in which each ends with its last step.

    One that goes on in a later fragment is truncated: its last observation has a value.
    """
    steps = sum(map(len, fragments))
    fragment = Fragment(runner.policy, fragments[0].obs[:1], steps, fragments[0].state_in)
    fragment.actions[:, 0] = np.concatenate([each.actions for each in fragments])
    fragment.rewards[:, 0] = runner.columns.reward_transform(np.concatenate([each.rewards for each in fragments]))
    fragment.terminated[:], fragment.truncated[:] = False, False
    if fragment.dist_inputs is not None:
        fragment.dist_inputs[:, 0] = np.concatenate([each.dist_inputs for each in fragments])
    end = 0
    for each in fragments:
        begin, end = end, end + len(each)
        fragment.obs[begin:end, 0] = each.obs[:-1]
        fragment.terminated[end - 1], fragment.truncated[end - 1] = each.terminated, not each.terminated
        fragment.finals.append((end - 1, 0, each.obs[-1]))
    fragment.obs[steps, 0] = fragments[-1].obs[-1]
    return fragment.rollout(steps, min(each.version for each in fragments))
