from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.run.build import run_experiment
from reef.run.events import (
    BatchLearned,
    CheckpointSaved,
    Evaluated,
    Events,
    ResultReported,
    RunEnded,
    RunStarted,
    SampleTaken,
)


class Told(NamedTuple):
    """An event of these tests."""

    text: str


def test_handlers_are_called_in_the_order_of_their_subscription_and_only_for_their_kind() -> None:
    events, told = Events(), []
    events.subscribe(Told, lambda event: told.append(("first", event.text)))
    events.subscribe(Told, lambda event: told.append(("second", event.text)))
    events.subscribe(RunEnded, lambda event: pytest.fail("of another kind"))
    events.emit(Told, "a")
    events.emit(Told, text="b")
    assert told == [("first", "a"), ("second", "a"), ("first", "b"), ("second", "b")]


def test_an_event_that_nobody_subscribed_to_is_not_made() -> None:
    def kind(text: str) -> Told:
        pytest.fail(f"{text} was made")

    Events().emit(kind, "a")


def test_what_a_handler_raises_is_not_swallowed() -> None:
    def handler(event: Told) -> None:
        raise RuntimeError(event.text)

    events = Events()
    events.subscribe(Told, handler)
    with pytest.raises(RuntimeError, match="it broke"):
        events.emit(Told, "it broke")


def ppo() -> AlgorithmConfig:
    sizes = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
    return PPOConfig.from_dict(sizes).environment("CartPole-v1").debugging(seed=0)


def dqn() -> AlgorithmConfig:
    sizes = {"hiddens": [4], "num_steps_sampled_before_learning_starts": 0, "train_batch_size": 4}
    return DQNConfig.from_dict(sizes).environment("CartPole-v1").debugging(seed=0)


@pytest.mark.parametrize("settings", [ppo, dqn])
def test_every_flow_says_what_it_samples_and_learns(settings: Any) -> None:
    seen: list[Any] = []
    with settings().evaluation(evaluation_duration=1).build() as algorithm:
        for kind in (SampleTaken, BatchLearned, Evaluated):
            algorithm.events.subscribe(kind, seen.append)
        result = algorithm.train()
        evaluation = algorithm.evaluate()["evaluation"]
    sampled = sum(event.sample.env_steps for event in seen if isinstance(event, SampleTaken))
    assert sampled == result["timesteps_this_iter"] > 0
    learned = [event.updates["default_policy"].stats for event in seen if isinstance(event, BatchLearned)]
    assert learned[-1].keys() == result["info"]["learner"]["default_policy"]["learner_stats"].keys()
    assert seen[-1] == Evaluated(1, evaluation)


def test_a_run_says_how_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.run.experiment.draw_learning_curve", lambda folder, title: None)
    seen: list[Any] = []
    emit = Events.emit

    def noted(events: Events, kind: Any, *arguments: Any) -> None:
        if kind in (RunStarted, ResultReported, CheckpointSaved, RunEnded):
            seen.append(kind(*arguments))
        emit(events, kind, *arguments)

    monkeypatch.setattr(Events, "emit", noted)
    for stop, resume in ((2, False), (3, True)):
        run_experiment(ppo(), stop={"training_iteration": stop}, storage_path=tmp_path, resume=resume, reporters=[])
    first, second = seen[:5], seen[5:]
    assert [type(event) for event in first] == [RunStarted, ResultReported, ResultReported, CheckpointSaved, RunEnded]
    assert [type(event) for event in second] == [RunStarted, CheckpointSaved, ResultReported, CheckpointSaved, RunEnded]
    assert second[1] == first[3]._replace(seconds=None), "the one that an earlier process wrote"
    assert first[3].iteration == 2 and first[3].seconds > 0
    assert (first[-1].summary.checkpoint, second[-1].summary.checkpoint) == (first[3].path, second[3].path)
