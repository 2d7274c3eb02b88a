"""How a policy explores: from a batch of action distributions to actions.

One `Exploration` per policy, made from `exploration_config`: `type` (a name of `EXPLORATIONS`, a path such as
"package.module:Name", or a class) and the arguments of that class. Own classes subclass `Exploration`; their `__init__`
takes an `ActionBox` first, then their arguments.
"""

from reef.rollout.exploration.action_box import ActionBox
from reef.rollout.exploration.discrete import EpsilonGreedy, Random, SoftQ
from reef.rollout.exploration.exploration import Exploration, StochasticSampling
from reef.rollout.exploration.intrinsic import RE3, Curiosity, IntrinsicExploration
from reef.rollout.exploration.make import EXPLORATIONS, PER_WORKER, make_exploration, rewards_what_is_new
from reef.rollout.exploration.noise import GaussianNoise, OrnsteinUhlenbeckNoise
from reef.rollout.exploration.parameter_noise import ParameterNoise
from reef.rollout.exploration.sub_exploration import WithSubExploration

__all__ = [
    "EXPLORATIONS",
    "PER_WORKER",
    "RE3",
    "ActionBox",
    "Curiosity",
    "EpsilonGreedy",
    "Exploration",
    "GaussianNoise",
    "IntrinsicExploration",
    "OrnsteinUhlenbeckNoise",
    "ParameterNoise",
    "Random",
    "SoftQ",
    "StochasticSampling",
    "WithSubExploration",
    "make_exploration",
    "rewards_what_is_new",
]
