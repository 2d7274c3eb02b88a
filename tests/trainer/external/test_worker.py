"""Training from applications: the worker, the flows, and what the settings refuse."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from applications import address, client_of, observation, settings
from gymnasium import spaces

from reef import Algorithm, PolicyClient, PolicyServerInput, SACConfig
from reef.callbacks import DefaultCallbacks
from reef.config.groups.inputs import IOContext
from reef.errors import ConfigError, EpisodeLostError, PolicyServerError
from reef.external.server import PolicyServer
from reef.external.worker import ExternalWorker

Serve = Callable[..., ExternalWorker]


def play_one(client: PolicyClient, env: Any, seed: int) -> float:
    """Play an episode of a Gymnasium environment; returns its reward."""
    episode, (obs, _), total, ended = client.start_episode(), env.reset(seed=seed), 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(client.get_action(episode, obs))
        client.log_returns(episode, reward)
        total, ended = total + reward, terminated or truncated
    client.end_episode(episode, obs, truncated=truncated)
    return total


@contextmanager
def playing(algorithm: Any, name: str, mode: str = "remote", clients: int = 1) -> Iterator[list[float]]:
    """Applications that play in threads of their own; the list grows with the rewards of their episodes."""
    rewards: list[float] = []
    over = threading.Event()

    def play(number: int) -> None:
        env = gym.make(name)
        given = {"update_interval": 0.1} if mode == "local" else {}
        client = PolicyClient(address(algorithm.workers.local_worker()), mode, **given)
        while not over.is_set():
            rewards.append(play_one(client, env, 1000 * number + len(rewards)))

    threads = [threading.Thread(target=play, args=(number,), daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield rewards
    finally:
        over.set()
        end = time.monotonic() + 60
        while any(thread.is_alive() for thread in threads):  # they may wait for a queue that is full
            assert time.monotonic() < end
            algorithm.workers.local_worker().source.queue.take(100, 0.01)


def for_env(name: str, algorithm: str = "PPO", **given: Any) -> Any:
    """Settings for applications that play, however slow this machine is."""
    env = gym.make(name)
    played = {"observation_space": env.observation_space, "action_space": env.action_space}
    return settings(algorithm, input_config={"idle_timeout": 60.0}, **played, **given)


def test_ppo_learns_cartpole_from_applications() -> None:
    config = for_env(
        "CartPole-v1",
        train_batch_size=1000,
        sgd_minibatch_size=100,
        num_sgd_iter=10,
        lr=3e-3,
        model={"fcnet_hiddens": [32]},
        rollout_fragment_length="auto",
    )
    with config.build() as algorithm, playing(algorithm, "CartPole-v1", "local", clients=2) as rewards:
        results = [algorithm.train() for _ in range(10)]
    assert results[0]["episode_reward_mean"] < 40
    assert max(np.convolve(rewards, np.ones(5) / 5, "valid")) > 80
    assert results[-1]["num_env_steps_trained"] >= 10_000
    assert results[-1]["episodes_total"] > 50


def test_ppo_learns_from_an_application_for_which_the_server_acts() -> None:
    with for_env("CartPole-v1", train_batch_size=100).build() as algorithm, playing(algorithm, "CartPole-v1"):
        before = algorithm.get_weights()["default_policy"]["pi.bias"]
        results = [algorithm.train() for _ in range(3)]
        assert (algorithm.get_weights()["default_policy"]["pi.bias"] != before).all()
    assert results[-1]["num_env_steps_trained"] >= 300
    assert 5 < results[-1]["episode_reward_mean"] < 100


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_dqn_replays_what_applications_played(mode: str) -> None:
    given = {"num_steps_sampled_before_learning_starts": 50, "n_step": 3, "min_sample_timesteps_per_iteration": 100}
    config = for_env("CartPole-v1", "DQN", **given)
    with config.build() as algorithm, playing(algorithm, "CartPole-v1", mode):
        result = algorithm.train()
        (buffer,) = algorithm.memory.buffers.values()
        assert len(buffer) == result["num_env_steps_sampled"] >= 100
        assert result["num_env_steps_trained"] > 0
        assert result["info"]["learner"]["default_policy"]["learner_stats"]["mean_td_error"] is not None


def test_sac_acts_in_the_bounds_of_its_actions() -> None:
    env = gym.make("Pendulum-v1")
    config = SACConfig().update_from_dict(
        {
            "observation_space": env.observation_space,
            "action_space": env.action_space,
            "input_": "policy_server",
            "input_config": {"port": 0, "idle_timeout": 60.0},
            "num_steps_sampled_before_learning_starts": 20,
            "min_sample_timesteps_per_iteration": 60,
        }
    )
    with config.build() as algorithm, playing(algorithm, "Pendulum-v1"):
        assert algorithm.train()["num_env_steps_trained"] > 0
        (actions,) = (buffer.take(np.arange(50)).actions for buffer in algorithm.memory.buffers.values())
        assert np.abs(actions).max() <= 1.0
        assert np.abs(actions).max() > 0.3


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_an_idle_server_lets_train_return(algorithm: str) -> None:
    given = {"min_sample_timesteps_per_iteration": 100} if algorithm == "DQN" else {}
    with settings(algorithm, **given).build() as built:
        for iteration in (1, 2):
            started = time.monotonic()
            result = built.train()
            assert 0.2 <= time.monotonic() - started < 10
            assert (result["training_iteration"], result["timesteps_this_iter"]) == (iteration, 0)
            assert result["episode_reward_reason"] == "no episode has ended yet"


def test_steps_of_an_iteration_that_ended_idle_are_learned_from_in_the_next(tmp_path: Path) -> None:
    """Also by an algorithm that goes on from a checkpoint."""

    def after(algorithm: Algorithm, steps: int) -> tuple[int, int]:
        client = client_of(algorithm.workers.local_worker())
        episode = client.start_episode()
        for _ in range(steps):
            client.get_action(episode, observation())
        client.end_episode(episode, observation())
        result = algorithm.train()
        return result["num_env_steps_sampled"], result["num_env_steps_trained"]

    with settings(train_batch_size=8).build() as algorithm:
        assert after(algorithm, 5) == (5, 0)
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        assert after(algorithm, 4) == (9, 9)
    with settings(train_batch_size=8).build() as algorithm:
        algorithm.restore(checkpoint)
        assert after(algorithm, 4) == (9, 9)


def test_the_age_of_the_weights_that_acted_is_a_metric() -> None:
    with settings(train_batch_size=8, rollout_fragment_length=8).build() as algorithm:
        clients = [client_of(algorithm.workers.local_worker(), "local", update_interval=None) for _ in range(2)]
        ages = []
        for by_hand in (False, False, True):
            for client in clients:
                if by_hand:
                    client.update_policy_weights()
                play_steps(client, 4)
            stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
            ages.append((stats["staleness"], stats["staleness_max"]))
    assert ages == [(0, 0), (1, 1), (0, 0)]


def test_a_checkpoint_is_restored_and_the_server_goes_on(tmp_path: Path) -> None:
    with settings().build() as algorithm:
        client = client_of(algorithm.workers.local_worker())
        play_steps(client, 8)
        algorithm.train()
        weights = algorithm.get_weights()
        algorithm.save(tmp_path / "checkpoint")
    with type(algorithm).from_checkpoint(tmp_path / "checkpoint") as restored:
        assert (restored.get_weights()["default_policy"]["pi.bias"] == weights["default_policy"]["pi.bias"]).all()
        play_steps(client_of(restored.workers.local_worker()), 8)
        assert restored.train()["num_env_steps_trained"] == 16


def test_a_restored_run_learns_from_nothing_that_was_played_before(tmp_path: Path) -> None:
    with settings(train_batch_size=8).build() as algorithm:
        client = client_of(algorithm.workers.local_worker())
        algorithm.save(tmp_path / "checkpoint")
        play_steps(client, 5)
        assert algorithm.train()["num_env_steps_sampled"] == 5  # too few to learn from
        play_steps(client, 4)  # which wait
        algorithm.restore(tmp_path / "checkpoint")
        result = algorithm.train()
        assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (0, 0)
        play_steps(client, 7)
        assert algorithm.train()["num_env_steps_trained"] == 0


def test_an_episode_that_is_open_ends_with_a_restore(tmp_path: Path) -> None:
    with settings(train_batch_size=8).build() as algorithm:
        worker = algorithm.workers.local_worker()
        client = client_of(worker)
        algorithm.save(tmp_path / "checkpoint")
        play_steps(client, 8)
        algorithm.train()
        episode = client.start_episode()
        for _ in range(3):
            client.get_action(episode, observation())
        algorithm.restore(tmp_path / "checkpoint")
        with pytest.raises(EpisodeLostError, match="is not open here"):
            client.get_action(episode, observation())
        assert worker.source._server._episodes.held == 0
        play_steps(client, 8)
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        assert (stats["staleness"], stats["staleness_max"]) == (0, 0)


def test_an_answer_that_comes_after_a_restore_is_of_no_episode(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = serve(rollout_fragment_length=1)
    client = client_of(worker, timeout_s=30.0)
    episode = client.start_episode()
    client.get_action(episode, observation())
    policies, state = worker.source._server._policies, worker.state()

    def answers(requests: Any) -> Any:
        found = type(policies).answers(policies, requests)
        worker.source._server._episodes.drop_all()  # as a restore does when the action is chosen
        return found

    monkeypatch.setattr(policies, "answers", answers)
    with pytest.raises(EpisodeLostError, match="is not open here"):
        client.get_action(episode, observation())
    assert worker.source.queue.steps == 0
    worker.stop()
    worker.set_state(state)  # a server that was stopped holds up nobody


def play_steps(client: PolicyClient, steps: int) -> None:
    episode = client.start_episode()
    for _ in range(steps):
        client.get_action(episode, observation())
    client.end_episode(episode, observation())


def test_evaluation_plays_in_an_environment_of_its_own() -> None:
    given = {"evaluation_interval": 1, "evaluation_duration": 2, "evaluation_config": {"env": "CartPole-v1"}}
    with for_env("CartPole-v1", **given).build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 2
    with pytest.raises(ConfigError, match="evaluation has no environment to play in: env=None"):
        settings(evaluation_interval=1).build()


class Batches(DefaultCallbacks):
    def on_sample_end(self, *, worker: Any, samples: Any, **_: Any) -> None:
        worker.seen = samples.env_steps


def test_samples_are_told_to_callbacks(serve: Serve) -> None:
    worker = serve(callbacks=Batches)
    play_steps(client_of(worker), 3)
    worker.sample(3)
    assert worker.seen == 3


def test_weights_are_clipped_rewards_are_not_reported_so(serve: Serve) -> None:
    worker = serve(clip_rewards=1.0)
    client = client_of(worker)
    episode = client.start_episode()
    client.get_action(episode, observation())
    client.log_returns(episode, 5.0)
    client.end_episode(episode, observation())
    sample = worker.sample(1)
    assert sample.rollouts["default_policy"].rewards.tolist() == [[1.0]]
    assert sample.episodes[0].reward == 5.0


CONTEXTS: list[IOContext] = []


def own_input(ioctx: IOContext) -> PolicyServerInput:
    """An input of the user's."""
    CONTEXTS.append(ioctx)
    return PolicyServerInput(ioctx, "127.0.0.1", **ioctx.input_config)


def test_a_function_makes_the_input(serve: Serve) -> None:
    del CONTEXTS[:]
    worker = serve(input_=own_input, input_config={"max_episodes": 3})
    (context,) = CONTEXTS
    assert (context.worker_index, context.worker) == (0, worker)
    assert context.input_config == {"port": 0, "idle_timeout": 0.2, "max_episodes": 3}
    play_steps(client_of(worker), 1)
    assert worker.sample(1).env_steps == 1


def test_a_function_that_makes_no_input_is_refused() -> None:
    with pytest.raises(ConfigError, match="returned None: expected a reef.PolicyServerInput"):
        ExternalWorker(settings(input_=lambda ioctx: None, input_config={}).checked())


def test_each_worker_has_a_port_of_its_own() -> None:
    first = free_ports()
    for index, port in ((0, first), (1, first), (2, first + 1)):
        worker = ExternalWorker(settings(input_config={"port": first}).checked(), worker_index=index)
        worker.stop()
        assert worker.source.port == port


def test_an_idle_worker_is_not_taken_for_one_that_hangs() -> None:
    given = {"input_config": {"idle_timeout": 5.0}, "sample_timeout_s": 5.0}
    with pytest.raises(ConfigError, match="idle_timeout=5 of the policy server, sample_timeout_s=5: a rollout worker"):
        ExternalWorker(settings(**given).checked(), worker_index=1)
    ExternalWorker(settings(**given).checked()).stop()


def test_the_failure_of_the_server_s_thread_ends_training(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise OSError("out of file descriptors")

    monkeypatch.setattr(PolicyServer, "_serve", fail)
    worker = serve()
    with pytest.raises(PolicyServerError, match=r"stopped: OSError\('out of file descriptors'\)"):
        worker.sample(1)


def test_arguments_that_there_are_not_are_refused() -> None:
    with pytest.raises(ConfigError, match="PolicyServerInput takes no 'prt'. Did you mean 'port'"):
        ExternalWorker(settings().update_from_dict({"input_config": {"prt": 1}}).checked())


def test_noise_of_the_episodes_of_one_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="type='ParameterNoise': not available with a policy server"):
        ExternalWorker(settings("DQN", exploration_config={"type": "ParameterNoise"}).checked())


def test_actions_that_are_not_drawn_by_the_policy_are_refused_where_they_are_weighed() -> None:
    random = {"exploration_config": {"random_timesteps": 5}}
    with pytest.raises(ConfigError, match="'default_policy': applications play .* random_timesteps=0"):
        ExternalWorker(settings(**random).checked())
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    ExternalWorker(settings("SAC", action_space=box, **random).checked(), with_env=False)


@pytest.mark.ray
def test_several_workers_have_a_server_each(ray_cluster: Any) -> None:
    first = free_ports()
    given = {"num_rollout_workers": 2, "input_config": {"port": first, "idle_timeout": 0.5}, "train_batch_size": 16}
    with settings(**given).build() as algorithm:
        for port in (first, first + 1):
            play_steps(PolicyClient(f"127.0.0.1:{port}", "remote", timeout_s=30.0), 8)
        result = algorithm.train()
        assert result["num_env_steps_trained"] == 16


def free_ports() -> int:
    """The first of two free ports in a row."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return int(port)
            except OSError:
                continue


def test_actions_outside_of_a_box_reach_nobody(serve: Serve) -> None:
    space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    worker = serve(action_space=space)
    client = client_of(worker)
    episode = client.start_episode()
    assert all(space.contains(client.get_action(episode, observation())) for _ in range(20))


@pytest.mark.parametrize(
    "use",
    [
        lambda worker: worker.apply(lambda own: own.timestep),
        lambda worker: worker.state(),
        lambda worker: worker.set_state(worker.state()),
        lambda worker: worker.filter_deltas(),
        lambda worker: worker.load_acting_weights(worker.acting_weights()),
    ],
)
def test_the_policy_is_used_between_two_answers_of_the_server(serve: Serve, use: Any) -> None:
    worker = serve(observation_filter="MeanStdFilter")
    thread = threading.Thread(target=use, args=(worker,))
    with worker.lock:  # as the server's thread holds it
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()
