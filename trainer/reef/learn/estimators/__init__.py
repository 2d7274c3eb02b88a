"""Estimates of what a policy would earn, from episodes that another policy played: without an environment."""

from reef.learn.estimators.estimator import OffPolicyEstimator
from reef.learn.estimators.fitted_q import FittedQ, QModel
from reef.learn.estimators.importance import ImportanceSampling, WeightedImportanceSampling
from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.learn.estimators.model_based import DirectMethod, DoublyRobust

__all__ = [
    "DirectMethod",
    "DoublyRobust",
    "FittedQ",
    "ImportanceSampling",
    "LoggedSteps",
    "OffPolicyEstimator",
    "QModel",
    "TargetPolicy",
    "WeightedImportanceSampling",
]
