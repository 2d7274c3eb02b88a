"""Hooks of reef.callbacks.default, reef.callbacks.hooks and reef.rollout.episode_hooks, and their setting.

Also reef.callbacks.sample_batch, and the checks in reef.config.callback_classes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
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


def test_a_hook_may_take_out_what_is_read_by_no_part_of_reef(tmp_path: Path):
    class Shrinks(DefaultCallbacks):
        def on_train_result(self, *, result, **kwargs):
            for key in ("hist_stats", "config", "sampler_perf", "hostname"):
                del result[key]

    class Blinds(DefaultCallbacks):
        def on_train_result(self, *, result, **kwargs):
            del result["episodes_total"]

    summary = run_experiment(small_ppo(Shrinks), stop={"training_iteration": 2}, storage_path=tmp_path)
    assert summary.result["training_iteration"] == 2
    assert "hist_stats" not in summary.result
    with pytest.raises(CallbackError, match="on_train_result took episodes_total out of the result, which others read"):
        run_experiment(small_ppo(Blinds), stop={"training_iteration": 2}, storage_path=tmp_path)


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


class Adds:
    """Its objects are hooks that Python does not bind."""

    def __call__(self, result, **kwargs):
        result["object"] = 1


def adds(key, *, result):
    result[key] = 1


class NoFunctions(DefaultCallbacks):
    on_train_result = Adds()


class NoFunctionsEither(DefaultCallbacks):
    on_train_result = partial(adds, "partial")


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
        ({"on_train_result": f"{HERE}:HERE"}, "expected a function of (info)."),
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
    with small_ppo([NoFunctions, NoFunctionsEither]).build() as algorithm:
        result = algorithm.train()
    assert (result["object"], result["partial"]) == (1, 1)


class Walk(gym.Env):
    """Ends after `length` steps; observation: the step; reward: 1; info: the step and the options of the reset."""

    observation_space = gym.spaces.Box(0.0, 100.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, context: dict[str, Any]) -> None:
        self.length, self.t = context.get("length", 2), 0
        self.fails_at = context.get("fails_at") if context.vector_index == 0 else None
        self.is_closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.options = 0, options
        return np.zeros(1, np.float32), {"t": 0, "options": options}

    def step(self, action):
        self.t += 1
        if self.t == self.fails_at:
            raise RuntimeError("broken")
        return np.array([self.t], np.float32), 1.0, self.t == self.length, False, {"t": self.t}


class Episodes(DefaultCallbacks):
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def on_create_policy(self, policy_id, policy):
        self.calls.append(("create_policy", policy_id))

    def on_sub_environment_created(self, *, worker, sub_environment, env_context, env_index, **kwargs):
        self.calls.append(("sub_environment", env_index, env_context.vector_index, type(sub_environment).__name__))

    def on_environment_created(self, *, worker, env, env_context):
        self.calls.append(("environment", len(env.get_sub_environments())))

    def on_episode_created(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.options = {"level": 3}
        self.calls.append(("created", env_index, episode.length))

    def on_episode_start(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        assert get_global_worker() is worker
        info = episode.last_info_for()
        episode.user_data["seen"] = []
        self.calls.append(("start", env_index, info.get("options"), float(episode.last_observation_for("agent0")[0])))

    def on_episode_step(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        inside = base_env.get_sub_environments()[env_index]
        episode.user_data["seen"].append(inside.t)
        self.calls.append(("step", env_index, episode.length, episode.last_info_for()["t"], inside.t))

    def on_episode_end(self, *, worker, base_env, policies, episode, env_index, **kwargs):
        episode.custom_metrics["sum"] = np.float32(sum(episode.user_data["seen"]))
        episode.hist_data["seen"] = episode.user_data["seen"]
        inside = base_env.get_sub_environments()[env_index]
        assert list(policies) == ["default_policy"]
        assert (episode.get_agents(), episode.policy_for("agent0")) == (["agent0"], "default_policy")
        assert episode.agent_rewards == {("agent0", "default_policy"): episode.total_reward}
        assert episode.last_action_for() in (0, 1)
        self.calls.append(("end", env_index, inside.t, episode.total_reward, episode.last_reward_for()))


def test_hooks_of_episodes_see_the_environment_before_it_is_reset():
    Episodes.calls.clear()
    with small_ppo(Episodes, Walk, train_batch_size=3, sgd_minibatch_size=3).build() as algorithm:
        result = algorithm.train()
    started = [("created", 0, 0), ("start", 0, {"level": 3}, 0.0)]
    assert Episodes.calls == [
        ("sub_environment", 0, 0, "Walk"),
        ("create_policy", "default_policy"),
        ("environment", 1),
        *started,
        ("step", 0, 1, 1, 1),
        ("step", 0, 2, 2, 2),
        ("end", 0, 2, 2.0, 1.0),
        *started,
        ("step", 0, 1, 1, 1),
    ]
    assert result["custom_metrics"] == {"sum_mean": 3.0, "sum_min": 3.0, "sum_max": 3.0}
    assert result["hist_stats"]["seen"] == [1.0, 2.0]


def test_custom_metrics_are_kept_per_episode_on_request():
    settings = {"keep_per_episode_custom_metrics": True, "train_batch_size": 6, "sgd_minibatch_size": 6}
    with small_ppo(Episodes, Walk, **settings).build() as algorithm:
        assert algorithm.train()["custom_metrics"] == {"sum": [3.0, 3.0, 3.0]}


def test_an_environment_that_is_made_again_begins_another_episode():
    Episodes.calls.clear()
    settings = {"restart_failed_sub_environments": True, "env_config": {"fails_at": 2}, "num_envs_per_worker": 2}
    with small_ppo(Episodes, Walk, train_batch_size=4, sgd_minibatch_size=4, **settings).build() as algorithm:
        result = algorithm.train()
    calls = [call for call in Episodes.calls if call[1:2] == (0,)]
    started = [("created", 0, 0), ("start", 0, {"level": 3}, 0.0)]
    made = ("sub_environment", 0, 0, "Walk")
    assert calls == [made, *started, ("step", 0, 1, 1, 1), made, *started]
    assert result["episodes_this_iter"] == 1


def test_a_resumed_episode_starts_at_the_step_it_has_reached(tmp_path: Path):
    settings = {"env_config": {"length": 4}, "train_batch_size": 2, "sgd_minibatch_size": 2}
    with small_ppo(Episodes, Walk, **settings).build() as algorithm:
        algorithm.train()
        path = algorithm.save(tmp_path / "checkpoint")
        algorithm_class = type(algorithm)
    with algorithm_class.from_checkpoint(path) as restored:
        Episodes.calls.clear()
        restored.restore(path)
        assert Episodes.calls == [("created", 0, 0), ("start", 0, None, 2.0)]
        Episodes.calls.clear()
        result = restored.train()
    assert Episodes.calls[:3] == [("step", 0, 1, 3, 3), ("step", 0, 2, 4, 4), ("end", 0, 4, 2.0, 1.0)]
    assert (result["episode_reward_mean"], result["episode_len_mean"]) == (4.0, 4.0)


class Pair(DefaultCallbacks):
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def on_episode_start(self, *, episode, **kwargs):
        self.calls.append(("start", episode.get_agents(), episode.policy_for(1)))

    def on_episode_end(self, *, episode, **kwargs):
        episode.custom_metrics["reward_of_1"] = episode.agent_rewards[1, "b"]
        self.calls.append(("end", episode.length, sorted(episode.agent_rewards)))


def test_hooks_of_episodes_of_several_agents():
    Pair.calls.clear()
    config = small_ppo(Pair, "reef.envs.multi_agent:IndependentAgents", env_config={"env": "CartPole-v1"}, horizon=5)
    mapping = {"0": "a", "1": "b"}
    with config.multi_agent(policies=["a", "b"], policy_mapping_fn=mapping).build() as algorithm:
        result = algorithm.train()
    start, end = ("start", [0, 1], "b"), ("end", 5, [(0, "a"), (1, "b")])
    assert Pair.calls == [start, end, start, end, start, end, start]
    assert result["custom_metrics"]["reward_of_1_mean"] == 5.0


class Metric(DefaultCallbacks):
    value: ClassVar[Any] = None

    def on_episode_end(self, *, episode, **kwargs):
        episode.custom_metrics["height"] = self.value


@pytest.mark.parametrize("value", ["high", None, np.zeros(2), 1j])
def test_a_custom_metric_that_is_no_number(value, monkeypatch):
    monkeypatch.setattr(Metric, "value", value)
    with small_ppo(Metric, Walk).build() as algorithm, pytest.raises(CallbackError) as found:
        algorithm.train()
    assert str(found.value) == f"callbacks: episode.custom_metrics['height']={value!r}: expected a number."


class RaisesInStep(DefaultCallbacks):
    def on_episode_step(self, *, episode, **kwargs):
        raise KeyError("height")


class RaisesInCreated(DefaultCallbacks):
    def on_episode_created(self, *, episode, **kwargs):
        raise KeyError("height")


@pytest.mark.parametrize(("callbacks", "hook"), [(RaisesInStep, "step"), (RaisesInCreated, "created")])
def test_what_a_hook_of_an_episode_raises_is_no_fault_of_the_environment(callbacks, hook):
    config = small_ppo(callbacks, Walk, restart_failed_sub_environments=True)
    with (
        config.build() as algorithm,
        pytest.raises(CallbackError, match=f"on_episode_{hook} raised KeyError: 'height'"),
    ):
        algorithm.train()


def test_without_hooks_of_episodes_environments_keep_their_fast_form():
    for callbacks, kind in ((None, "CartPoleVector"), (Driver, "CartPoleVector"), (Episodes, "LoopVectorEnv")):
        with small_ppo(callbacks).build() as algorithm:
            assert type(algorithm.workers.local_worker().env.env).__name__ == kind


class Rewrites(DefaultCallbacks):
    calls: ClassVar[list[tuple[Any, ...]]] = []

    def on_postprocess_trajectory(
        self, *, worker, episode, agent_id, policy_id, policies, postprocessed_batch, original_batches, **kwargs
    ):
        batch = postprocessed_batch
        assert batch["new_obs"].shape == batch["obs"].shape == (batch.count, 1)
        assert {"actions", "rewards", "terminateds", "truncateds", "dones", "action_logp"} <= set(batch)
        steps, dones = batch["obs"][:, 0].tolist(), batch["dones"].tolist()
        self.calls.append((agent_id, policy_id, episode.env_id, episode.length, steps, dones))
        batch["rewards"] = batch["rewards"] * 0
        batch["rewards"][-1] = 10.0
        nothing, policy_class, original = original_batches[agent_id]
        assert (nothing, policy_class) == (None, type(policies[policy_id]))
        assert original["rewards"].tolist() == [1.0] * batch.count

    def on_sample_end(self, *, worker, samples):
        rewards = samples.rollouts["default_policy"].rewards
        self.calls.append(("sample", rewards[:, 0].tolist()))
        rewards += 0.5

    def on_learn_on_batch(self, *, policy, train_batch, result):
        self.calls.append(("learn", train_batch["rewards"][:, 0].tolist(), type(policy).__name__))
        result["largest_reward"] = train_batch["rewards"].max()


def test_trajectories_are_rewritten_and_learners_see_it():
    Rewrites.calls.clear()
    with small_ppo(
        Rewrites, Walk, train_batch_size=5, sgd_minibatch_size=5, env_config={"length": 3}
    ).build() as algorithm:
        result = algorithm.train()
    assert Rewrites.calls == [
        ("agent0", "default_policy", 0, 3, [0.0, 1.0, 2.0], [False, False, True]),
        ("agent0", "default_policy", 0, 2, [0.0, 1.0], [False, False]),
        ("sample", [0.0, 0.0, 10.0, 0.0, 10.0]),
        ("learn", [0.5, 0.5, 10.5, 0.5, 10.5], "ActorCritic"),
    ]
    assert result["episode_reward_mean"] == 3.0  # as the environment gave it
    assert result["info"]["learner"]["default_policy"]["learner_stats"]["largest_reward"] == 10.5


class Cuts(DefaultCallbacks):
    key: ClassVar[str] = "rewards"

    def on_postprocess_trajectory(self, *, postprocessed_batch, **kwargs):
        postprocessed_batch[self.key] = np.zeros(2)


@pytest.mark.parametrize(
    ("key", "text"),
    [("rewards", "batch['rewards'] has the shape [16], not [2]"), ("reward", "Did you mean 'rewards'?")],
)
def test_an_array_of_another_shape_or_name_is_refused(key, text, monkeypatch):
    monkeypatch.setattr(Cuts, "key", key)
    with small_ppo(Cuts, Walk, env_config={"length": 50}).build() as algorithm, pytest.raises(CallbackError) as found:
        algorithm.train()
    assert text in str(found.value)


def test_parts_of_an_episode_that_broke_and_of_several_environments():
    Rewrites.calls.clear()
    settings = {"restart_failed_sub_environments": True, "env_config": {"fails_at": 2, "length": 3}}
    sizes = {"num_envs_per_worker": 2, "train_batch_size": 6, "sgd_minibatch_size": 6}
    with small_ppo(Rewrites, Walk, **settings, **sizes).build() as algorithm:
        algorithm.train()
    parts = [call[2:] for call in Rewrites.calls if call[0] == "agent0"]
    assert sorted(parts) == [
        (0, 1, [0.0], [False]),
        (0, 1, [0.0], [False]),
        (1, 3, [0.0, 1.0, 2.0], [False, False, True]),
    ]


def bonus(info):
    _, before = info["pre_batch"]
    assert before["rewards"].sum() == before.count
    info["post_batch"]["rewards"] = before["rewards"] + 1


def test_older_functions_rewrite_trajectories():
    events = {"on_postprocess_traj": bonus, "on_episode_end": lambda info: info["episode"].custom_metrics.update(a=1)}
    with small_ppo(events, Walk).build() as algorithm:
        (sample,) = algorithm.workers.sample()
    assert sample.rollouts["default_policy"].rewards.tolist() == [[2.0]] * 16
    assert sample.episodes[0].custom_metrics == {"a": 1.0}
