"""Estimates of the value of the policy that is evaluated, from recorded episodes."""

from __future__ import annotations

from typing import Any

from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.learn.estimators import LoggedSteps
from reef.learn.estimators.make import make_estimators
from reef.learn.estimators.target import EvaluatedPolicy
from reef.rollout.policy_runner import PolicyRunner
from reef.rollout.worker import RolloutWorker
from reef.run.recorded.reading import recorded_sources
from reef.trees import json_safe


class Estimation:
    """The recorded episodes of `input_`, and the estimators of `off_policy_estimation_methods`."""

    def __init__(self, config: AlgorithmConfig, trained: RolloutWorker) -> None:
        """`config`: of evaluation. `trained`: a worker with the policy.

        Raises:
            ConfigError: no episode can be read, an estimator cannot be made or needs what is not recorded, or
                the policy cannot be evaluated so.
        """
        runner = only_runner(trained)
        observations, actions = runner.policy.observation_layout, runner.policy.action_layout
        methods = config.off_policy_estimation_methods
        self.estimators = make_estimators(methods, observations, actions, gamma=config.gamma, seed=config.seed)
        evaluated(runner)
        if runner.policy.initial_state(0) and not config.ope_split_batch_by_episode:
            raise ConfigError(
                "ope_split_batch_by_episode=False: the policy has a memory, which depends on the earlier steps of an "
                "episode. Leave it at True."
            )
        sources = recorded_sources(config, runner, to_estimate=True)
        steps = LoggedSteps.of([episode for source in sources for episode in source.read()])
        for estimator in self.estimators.values():
            estimator.check(steps)
        self.steps = steps if config.ope_split_batch_by_episode else steps.step_by_step()

    def measure(self, worker: RolloutWorker) -> dict[str, Any]:
        """By the name of each method, its estimate for the policy of a worker."""
        target = evaluated(only_runner(worker))
        estimates = {name: each.estimate(self.steps, target) for name, each in self.estimators.items()}
        return json_safe(estimates)  # type: ignore[no-any-return]


def evaluated(runner: PolicyRunner) -> EvaluatedPolicy:
    """The policy of a runner as the target of estimates; ConfigError where it has no likelihoods."""
    return EvaluatedPolicy(runner.policy, runner.filtered, runner.columns.reward_transform)


def only_runner(worker: RolloutWorker) -> PolicyRunner:
    """What acts with the only policy."""
    (runner,) = worker.runners.values()
    return runner
