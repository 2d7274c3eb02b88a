"""Measure a policy where it was not trained, by an evaluation of your own: `python examples/evaluation_function.py`.

CartPole is learned with a pole of the usual length. Every five iterations the policy balances shorter and longer ones.
"""

import gymnasium as gym

from reef import PPOConfig
from reef.run.metrics import summarize_episodes

LENGTHS = (0.25, 0.5, 1.0, 2.0)  # half of the pole's, in metres; 0.5 is the usual one


def cartpole(env_config):
    """An environment of its own for each column, so that each can have its own pole."""
    return gym.make("CartPole-v1")


def lengths(algorithm, evaluation_workers):
    """The mean reward with each pole, and the smallest of these as the reward."""
    rewards = {}
    for length in LENGTHS:

        def shape(env, length=length):
            pole = env.unwrapped
            pole.length, pole.polemass_length = length, pole.masspole * length

        evaluation_workers.foreach_worker(lambda worker, shape=shape: worker.foreach_env(shape))
        samples = evaluation_workers.sample_episodes(10)
        found = summarize_episodes([episode for sample in samples for episode in sample.episodes])
        rewards[f"pole_{length:g}"] = found["episode_reward_mean"]
    return {"episode_reward_mean": min(rewards.values()), **rewards}


def settings():
    """PPO with this evaluation, and no exploration in it."""
    return (
        PPOConfig()
        .environment(cartpole)
        .rollouts(num_envs_per_worker=8)
        .training(train_batch_size=1024, sgd_minibatch_size=256, num_sgd_iter=10, lr=1e-3, gamma=0.98, lambda_=0.9)
        .training(model={"fcnet_hiddens": [64, 64]})
        .evaluation(evaluation_interval=5, custom_evaluation_function=lengths, evaluation_config={"explore": False})
        .debugging(seed=1)
    )


def train(config, iterations):
    """Return the results of all evaluations."""
    found = []
    with config.build() as algorithm:
        for _ in range(iterations):
            result = algorithm.train()
            if evaluation := result.get("evaluation"):
                found.append(evaluation)
                print(result["timesteps_total"], {key: evaluation[key] for key in evaluation if key.startswith("pole")})
    return found


if __name__ == "__main__":
    train(settings(), 60)
