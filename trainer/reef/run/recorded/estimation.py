"""Estimates of the value of the policy that is evaluated, from recorded episodes."""

from __future__ import annotations

from typing import Any

from reef.config import AlgorithmConfig
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
        EvaluatedPolicy(runner.policy, runner.filtered)
        sources = recorded_sources(config, runner, to_estimate=True)
        steps = LoggedSteps.of([episode for source in sources for episode in source.read()])
        for estimator in self.estimators.values():
            estimator.check(steps)
        self.steps = steps if config.ope_split_batch_by_episode else steps.step_by_step()

    def measure(self, worker: RolloutWorker) -> dict[str, Any]:
        """By the name of each method, its estimate for the policy of a worker."""
        runner = only_runner(worker)
        target = EvaluatedPolicy(runner.policy, runner.filtered)
        estimates = {name: each.estimate(self.steps, target) for name, each in self.estimators.items()}
        return json_safe(estimates)  # type: ignore[no-any-return]


def only_runner(worker: RolloutWorker) -> PolicyRunner:
    """What acts with the only policy."""
    (runner,) = worker.runners.values()
    return runner
