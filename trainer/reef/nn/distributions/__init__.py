"""Action distributions, made from a network's outputs [N, D].

What a loss reads of them is torch; actions are drawn in NumPy, as torch's calls would cost more than the drawing.
"""

from reef.nn.distributions.continuous import DiagonalGaussian, Squashed, SquashedGaussian
from reef.nn.distributions.custom import CustomDistribution
from reef.nn.distributions.discrete import Bernoulli, Categorical
from reef.nn.distributions.distribution import Distribution, LeafDistribution
from reef.nn.distributions.of_spaces import (
    ActionDistribution,
    DistributionMaker,
    Joint,
    Part,
    Reshaped,
    distribution_maker,
)

__all__ = [
    "ActionDistribution",
    "Bernoulli",
    "Categorical",
    "CustomDistribution",
    "DiagonalGaussian",
    "Distribution",
    "DistributionMaker",
    "Joint",
    "LeafDistribution",
    "Part",
    "Reshaped",
    "Squashed",
    "SquashedGaussian",
    "distribution_maker",
]
