"""Estimates of what a policy would earn, from episodes that another policy played: without an environment."""

from reef.offline.estimators.estimator import OffPolicyEstimator
from reef.offline.estimators.fitted_q import FittedQ, QModel
from reef.offline.estimators.importance import ImportanceSampling, WeightedImportanceSampling
from reef.offline.estimators.logged import LoggedSteps, TargetPolicy
from reef.offline.estimators.model_based import DirectMethod, DoublyRobust

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
