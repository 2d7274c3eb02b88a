"""Hooks of reef.callbacks.default and reef.callbacks.hooks, and the setting reef.config.callback_classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from reef import PPOConfig
from reef.callbacks import DefaultCallbacks, MultiCallbacks, get_global_worker, make_multi_callbacks
from reef.config import AlgorithmConfig
from reef.errors import CallbackError, ConfigError, WorkerError
from reef.run.build import run_experiment

HERE = "tests.trainer.test_callbacks"


def small_ppo(callbacks: Any, env: Any = "CartPole-v1", **settings: Any) -> PPOConfig:
    config = PPOConfig().environment(env).callbacks(callbacks).debugging(seed=1)
    sizes = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}
    return config.update_from_dict(sizes | settings)


class Driver(DefaultCallbacks):
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def on_algorithm_init(self, *, algorithm, **kwargs):
        self.calls.append(("algorithm_init", algorithm, sorted(kwargs)))

    def on_trainer_init(self, trainer):
        self.calls.append(("trainer_init", trainer))

    def on_train_result(self, *, trainer, result, **kwargs):
        self.calls.append(("train_result", trainer.iteration, sorted(kwargs)))
        result["custom_metrics"]["iteration_squared"] = np.float32(trainer.iteration**2)

    def on_evaluate_start(self, algorithm):
        self.calls.append(("evaluate_start", algorithm.iteration))

    def on_evaluate_end(self, *, algorithm, evaluation_metrics, **kwargs):
        self.calls.append(("evaluate_end", evaluation_metrics["episodes_this_iter"]))
        evaluation_metrics["answer"] = 42

    def on_checkpoint_loaded(self, *, algorithm):
        self.calls.append(("checkpoint_loaded", algorithm.iteration))


def test_hooks_of_the_driver_run_in_order_with_the_arguments_that_they_name(tmp_path: Path):
    Driver.calls.clear()
    settings = {"evaluation_interval": 2, "evaluation_duration": 1}
    with small_ppo(Driver, **settings).build() as algorithm:
        first, second = algorithm.train(), algorithm.train()
        path = algorithm.save(tmp_path / "checkpoint")
        algorithm.restore(path)
    assert Driver.calls == [
        ("algorithm_init", algorithm, ["trainer"]),
        ("trainer_init", algorithm),
        ("train_result", 1, ["algorithm"]),
        ("evaluate_start", 2),
        ("evaluate_end", 1),
        ("train_result", 2, ["algorithm"]),
        ("checkpoint_loaded", 2),
    ]
    assert first["custom_metrics"]["iteration_squared"] == 1.0
    assert second["custom_metrics"]["iteration_squared"] == 4.0
    assert type(second["custom_metrics"]["iteration_squared"]) is float
    assert second["evaluation"]["answer"] == 42
    Driver.calls.clear()
    with type(algorithm).from_checkpoint(path) as restored:
        assert [call[0] for call in Driver.calls] == ["algorithm_init", "trainer_init", "checkpoint_loaded"]
        assert restored.config.callbacks_class == f"{HERE}:Driver"


class First(DefaultCallbacks):
    def on_train_result(self, result, **kwargs):
        result["order"] = [*result.get("order", []), "first"]


class Second(DefaultCallbacks):
    def on_train_result(self, result, **kwargs):
        result["order"] = [*result.get("order", []), "second"]


@pytest.mark.parametrize(
    "given",
    [
        [First, Second],
        MultiCallbacks([First, Second]),
        make_multi_callbacks([First, Second]),
        [f"{HERE}:First", f"{HERE}:Second"],
        [First, DefaultCallbacks, f"{HERE}:Second"],
    ],
)
def test_several_classes_are_called_in_the_order_of_their_list(given):
    with small_ppo(given).build() as algorithm:
        assert algorithm.train()["order"] == ["first", "second"]


def note(info):
    info["result"]["noted"] = info["trainer"].iteration


@pytest.mark.parametrize("function", [note, f"{HERE}:note"])
def test_a_mapping_of_events_to_functions(function):
    with small_ppo({"on_train_result": function}).build() as algorithm:
        assert algorithm.train()["noted"] == 1


class Stops(DefaultCallbacks):
    def on_train_result(self, *, result, **kwargs):
        result["mine"] = 0.5
        result["done"] = result["training_iteration"] == 2


def test_done_in_the_result_ends_the_run_and_what_was_added_is_in_its_files(tmp_path: Path):
    summary = run_experiment(small_ppo(Stops), stop={"training_iteration": 5}, storage_path=tmp_path, reporters=[])
    assert summary.result["training_iteration"] == 2
    assert (summary.exit_code, summary.reason) == (0, "done was set in the result")
    assert '"mine": 0.5' in (summary.folder / "result.json").read_text()
    assert "mine" in (summary.folder / "progress.csv").read_text().splitlines()[0].split(",")


class Raises(DefaultCallbacks):
    def on_train_result(self, *, algorithm, result, **kwargs):
        raise ValueError("no good")


class RaisesInInit(DefaultCallbacks):
    def __init__(self, threshold):
        pass

    def on_algorithm_init(self, **kwargs):
        pass


class Stopped(DefaultCallbacks):
    def on_train_result(self, *, algorithm, **kwargs):
        algorithm.stop()
        algorithm.evaluate()


def test_what_a_hook_raises_names_hook_and_line():
    with small_ppo(Raises).build() as algorithm, pytest.raises(CallbackError) as found:
        algorithm.train()
    text = str(found.value)
    line = Raises.on_train_result.__code__.co_firstlineno + 1
    assert text.startswith(f"callbacks Raises.on_train_result raised ValueError: no good ({__file__}, line {line}).")
    assert 'raise ValueError("no good")' in text
    assert found.value.exit_code == 2


def test_what_reef_raises_inside_of_a_hook_is_raised_as_it_is():
    with small_ppo(Stopped).build() as algorithm, pytest.raises(WorkerError, match="the algorithm was stopped"):
        algorithm.train()


def test_a_class_that_cannot_be_made():
    with pytest.raises(CallbackError, match=r"callbacks RaisesInInit.__init__ raised TypeError: .*'threshold'"):
        small_ppo(RaisesInInit).build()


def test_the_worker_of_the_process_is_known_inside_of_hooks_only():
    class Asks(DefaultCallbacks):
        def on_train_result(self, *, algorithm, result):
            result["same"] = get_global_worker() is algorithm.workers.local_worker()

    with small_ppo(Asks).build() as algorithm:
        assert algorithm.train()["same"] is True
    with pytest.raises(RuntimeError, match="only inside hooks"):
        get_global_worker()


class Nothing(DefaultCallbacks):
    def helper(self):
        pass


class Misspelt(DefaultCallbacks):
    def on_train_results(self, **kwargs):
        pass


class AsksForMore(DefaultCallbacks):
    def on_train_result(self, *, algorithm, results, **kwargs):
        pass


class PositionalOnly(DefaultCallbacks):
    def on_train_result(self, algorithm, /, **kwargs):
        pass


class NoMethod(DefaultCallbacks):
    on_train_result = 3


class Unrelated:
    pass


class Plain:
    """Does not derive from DefaultCallbacks, and has a hook."""

    @staticmethod
    def on_train_result(result):
        result["plain"] = 1


def takes_info(info):
    pass


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (Nothing, "callbacks: Nothing has no hook. Override at least one of on_algorithm_init,"),
        (Unrelated, "callbacks: Unrelated has no hook."),
        (Misspelt, "Misspelt.on_train_results is no hook and would never be called. Did you mean 'on_train_result'?"),
        (AsksForMore, "AsksForMore.on_train_result asks for 'results', which is not passed as a keyword. Did you mean"),
        (PositionalOnly, "PositionalOnly.on_train_result asks for 'algorithm', which is not passed as a keyword."),
        (NoMethod, "callbacks: NoMethod.on_train_result is 3: expected a method."),
        (takes_info, "expected text or class or list of text or class or mapping or null."),
        (3, "callbacks=3: expected text or class or list of text or class or mapping or null."),
        ([Driver, 3], "expected text or class or list of text or class or mapping or null."),
        (f"{HERE}:takes_info", "expected a class. Derive it from DefaultCallbacks."),
        (f"{HERE}:Drivers", f"callbacks '{HERE}:Drivers': {HERE} has no 'Drivers'. Did you mean 'Driver'?"),
        ("Driver", "callbacks 'Driver': expected the form 'package.module:Name'."),
        ("no_such_module:Driver", "callbacks 'no_such_module:Driver': there is no module 'no_such_module'."),
        ({"on_train_results": takes_info}, "'on_train_results' is no event. Did you mean 'on_train_result'?"),
        ({"on_train_result": 3}, "expected text or class or list of text or class or mapping or null."),
        ({"on_train_result": f"{HERE}:HERE"}, "expected a function of one argument."),
    ],
)
def test_wrong_use_is_refused_with_the_fix(given, text):
    with pytest.raises(ConfigError) as refusal:
        small_ppo(given).validate()
    assert text in str(refusal.value)
    assert str(refusal.value).startswith("1 problem in the settings of PPO:")
    with pytest.raises(ConfigError) as refusal:
        small_ppo(None).evaluation(evaluation_config={"callbacks": given}).validate()
    assert text in str(refusal.value)


def test_what_is_fine():
    for given in (None, DefaultCallbacks, Driver, "reef.callbacks:DefaultCallbacks", [], {}):
        small_ppo(given).validate()
    assert AlgorithmConfig().to_dict()["callbacks"] is None
    assert small_ppo([First, Second]).to_dict()["callbacks"] == [f"{HERE}:First", f"{HERE}:Second"]
    with small_ppo(Plain).build() as algorithm:
        assert algorithm.train()["plain"] == 1
