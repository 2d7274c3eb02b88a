"""Count how often the pole is near its edge, and stop once it seldom is: `python examples/callbacks.py`."""

from reef import PPOConfig
from reef.callbacks import DefaultCallbacks


class NearTheEdge(DefaultCallbacks):
    """Measures an episode step by step."""

    def on_episode_start(self, *, episode, **kwargs):
        """Have a list for the steps; it is not reported."""
        episode.user_data["angles"] = []

    def on_episode_step(self, *, episode, **kwargs):
        """Note the pole's angle."""
        episode.user_data["angles"].append(abs(episode.last_observation_for()[2]))

    def on_episode_end(self, *, episode, **kwargs):
        """Report the share of steps, and all angles as a histogram."""
        angles = episode.user_data["angles"]
        episode.custom_metrics["near_the_edge"] = sum(angle > 0.1 for angle in angles) / len(angles)
        episode.hist_data["angles"] = angles


class StopsWhenSafe(DefaultCallbacks):
    """Looks at the result of each iteration."""

    def on_train_result(self, *, result, **kwargs):
        """End the run by `done`."""
        result["done"] = result["custom_metrics"]["near_the_edge_mean"] < 0.05


if __name__ == "__main__":
    config = PPOConfig().environment("CartPole-v1").callbacks([NearTheEdge, StopsWhenSafe]).debugging(seed=1)
    with config.build() as algorithm:
        for _ in range(20):
            result = algorithm.train()
            print(result["training_iteration"], result["custom_metrics"])
            if result["done"]:
                break
