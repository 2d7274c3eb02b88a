"""Learn with a loop of your own, from Reef's workers and policy: `python examples/own_loop.py`.

The loop is the cross-entropy method: play episodes, keep the best fifth, and have the policy imitate what it did in
these. Sampling, vectorised environments, and weights that reach every worker come from Reef; the loss is your own.
"""

import torch

from reef import PPOConfig
from reef.callbacks import SampleBatch

BEST = 0.2  # the share of the episodes that is imitated


def settings(**rollouts):
    """What the loop needs of an algorithm: environments, workers and a network."""
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=16, batch_mode="complete_episodes", **rollouts)
        .training(train_batch_size=2000, model={"fcnet_hiddens": [64]})
        .debugging(seed=1)
    )


def episodes_of(batch):
    """The episodes of a batch, best first."""
    return sorted(batch.split_by_episode(), key=lambda episode: episode["rewards"].sum(), reverse=True)


def imitate(policy, optimizer, batch):
    """Make the actions of a batch more likely, by a few steps on the cross-entropy; returns the last one."""
    actions = torch.as_tensor(batch["actions"])
    for _ in range(10):
        logits, _ = policy.model({"obs": batch["obs"]})
        loss = -policy.dist_class(logits, policy.model).logp(actions).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def train(config, iterations):
    """Return the mean episode reward of each iteration."""
    rewards = []
    with config.build() as algorithm:
        policy = algorithm.get_policy()
        optimizer = torch.optim.Adam(policy.model.parameters(), lr=0.01)
        for iteration in range(iterations):
            played = episodes_of(SampleBatch.concat_samples(algorithm.workers.sample()))
            best = played[: max(int(BEST * len(played)), 1)]
            loss = imitate(policy, optimizer, SampleBatch.concat_samples(best))
            policy.set_weights(policy.get_weights())  # and so of every worker
            rewards.append(sum(episode["rewards"].sum() for episode in played) / len(played))
            print(f"{iteration}: mean reward {rewards[-1]:.1f} in {len(played)} episodes, loss {loss:.3f}")
    return rewards


if __name__ == "__main__":
    train(settings(), 30)
