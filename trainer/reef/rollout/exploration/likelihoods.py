"""Which explorations an actor-critic can learn from."""

from __future__ import annotations

from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.rollout.exploration.exploration import Exploration, StochasticSampling
from reef.rollout.exploration.sub_exploration import WithSubExploration

OTHERS = "use PPO, or IMPALA or APPO with vtrace, which weigh each action by how likely it was"


def require_likelihoods(config: AlgorithmConfig, exploration: Exploration) -> None:
    """Raise ConfigError where the gradient of an actor-critic would be wrong for the actions of its exploration."""
    weighs = getattr(config, "weighs_actions", None)
    if weighs is None or exploration.follows_policy(0) or (weighs and exploration.has_logp):
        return
    label = f"{config.label} with vtrace=False" if getattr(config, "vtrace", True) is False else config.label
    path, chooses = "exploration_config", exploration
    if isinstance(chooses, WithSubExploration) and chooses.sub.has_logp == chooses.has_logp:
        path, chooses = f"{path}.sub_exploration", chooses.sub
    kind = f"{path}.type={type(chooses).__name__!r}: {label}"
    if weighs:
        raise ConfigError(
            f"{kind} weighs each action by how likely it was, which is not known of this exploration. Use "
            "'StochasticSampling', 'Random', 'EpsilonGreedy' or 'SoftQ'. A class of your own needs has_logp and logp."
        )
    if isinstance(chooses, StochasticSampling):
        raise ConfigError(
            f"{path}.random_timesteps={chooses.random_timesteps}: {label} would learn from the random actions as if "
            f"its policy had chosen them. Set it to 0, or {OTHERS}."
        )
    raise ConfigError(
        f"{kind} learns from each action as if its policy had chosen it. Use 'StochasticSampling', or {OTHERS}."
    )
