"""Learn from an application that brings its own loop.

In one terminal `python examples/external_cartpole.py server`, in others `python examples/external_cartpole.py client`.
Without an argument both run here, for a minute or two. The application stands for a game or a machine: Reef never steps
its environment.
"""

import multiprocessing
import sys

import gymnasium as gym

from reef import PolicyClient, PPOConfig

PORT = 9900


def settings(port):
    """PPO that waits for applications; the spaces say what they give and take."""
    env = gym.make("CartPole-v1")
    return (
        PPOConfig()
        .environment(observation_space=env.observation_space, action_space=env.action_space)
        .offline_data(input_="policy_server", input_config={"address": "127.0.0.1", "port": port})
        .training(lr=1e-3, train_batch_size=1000, sgd_minibatch_size=100, num_sgd_iter=10)
        .debugging(seed=1)
    )


def serve(port=PORT, iterations=30):
    """Train, and return the mean reward of each iteration; those in which no application plays are short."""
    rewards = []
    with settings(port).build() as algorithm:
        while len(rewards) < iterations:
            result = algorithm.train()
            if result["info"]["learner"]:
                rewards.append(result["episode_reward_mean"])
                print(f"{result['timesteps_total']:7} steps, mean reward {rewards[-1]:.1f}", flush=True)
    return rewards


def play(port=PORT, mode="local", episodes=10**6):
    """The application: its loop, its environment, and a policy that it asks."""
    env = gym.make("CartPole-v1")
    interval_s = 1.0 if mode == "local" else None  # between fetches of weights
    client = PolicyClient(f"http://127.0.0.1:{port}", inference_mode=mode, update_interval=interval_s)
    for seed in range(episodes):
        episode = client.start_episode()
        obs, _ = env.reset(seed=seed)
        over = False
        while not over:
            action = client.get_action(episode, obs)
            obs, reward, terminated, truncated, _ = env.step(action)
            client.log_returns(episode, reward)
            over = terminated or truncated
        client.end_episode(episode, obs, truncated=truncated)


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else "both"
    if what == "client":
        play()
    elif what == "server":
        serve()
    else:
        application = multiprocessing.get_context("spawn").Process(target=play, daemon=True)
        application.start()
        serve()
        application.terminate()
