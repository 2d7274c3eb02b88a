"""The policy server of a head: it listens beyond its pod only with the token of the document's Secret."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import RLTrainingJob, job_from_document
from reef.errors import ConfigError
from reef.external.client import TOKEN_ENV
from reef.job.settings import cluster_config_of, config_of

EXTERNAL = {"tokenSecretRef": {"name": "game"}, "from": [{"podSelector": {"matchLabels": {"app": "game"}}}]}
SPACES = {
    "observation_space": {"type": "Box", "low": -5.0, "high": 5.0, "shape": [4]},
    "action_space": {"type": "Discrete", "n": 2},
}
PLAYED = SPACES | {"input_": "policy_server"}
OPEN = {"address": "0.0.0.0", "port": 9900, "token_env": TOKEN_ENV}


def job(document: Any, config: dict[str, Any], **spec: Any) -> RLTrainingJob:
    asked: RLTrainingJob = job_from_document(document(environment={"name": "external"}, config=config, **spec))
    return asked


def test_the_head_listens_for_applications_with_the_documents_token(document: Any) -> None:
    asked = job(document, PLAYED | {"input_config": {"max_episodes": 5}}, externalInput=EXTERNAL)
    assert cluster_config_of(asked, "10.0.0.7").input_config == {"max_episodes": 5, **OPEN}
    assert cluster_config_of(asked, "fd00::7").input_config["address"] == "::"
    assert config_of(asked).input_config == {"max_episodes": 5}, "with reef run it stays on this machine"


def test_a_pool_may_hold_learners(document: Any) -> None:
    pools = [{"name": "learners", "rolloutWorkers": 0}]
    config = PLAYED | {"num_learner_workers": 1}
    assert cluster_config_of(job(document, config, workers=pools, externalInput=EXTERNAL)).input_config == OPEN


@pytest.mark.parametrize(
    ("config", "spec", "expected"),
    [
        (
            {"input_": "sampler"},
            {"environment": {"name": "CartPole-v1"}},
            "spec.config.input_: 'sampler', and .*externalInput",
        ),
        (PLAYED, {"workers": [{"name": "cpu", "replicas": 2}]}, "spec.config.num_rollout_workers: 2, .* Set it to 0"),
        (PLAYED | {"input_config": {"port": 80}}, {}, "spec.config.input_config.port: 80: .* Remove it"),
        (PLAYED | {"input_config": {"address": "::1"}}, {}, "spec.config.input_config.address: '::1': .* Remove it"),
        (
            PLAYED | {"input_config": {"token_file": "/t"}},
            {},
            "spec.config.input_config.token_file: '/t': .* Remove it",
        ),
    ],
)
def test_settings_that_make_no_such_server_are_refused(
    document: Any, config: dict[str, Any], spec: dict[str, Any], expected: str
) -> None:
    asked = job_from_document(
        document(**{"environment": {"name": "external"}, "config": config, "externalInput": EXTERNAL} | spec)
    )
    for read in (config_of, cluster_config_of):
        with pytest.raises(ConfigError, match=expected):
            read(asked)


def test_all_of_them_are_named_together(document: Any) -> None:
    asked = job(document, PLAYED | {"input_config": {"port": 80, "token_env": "T"}}, externalInput=EXTERNAL)
    with pytest.raises(ConfigError, match=r"(?s)input_config.port: 80.*input_config.token_env: 'T'"):
        config_of(asked)


@pytest.mark.parametrize(
    ("given", "open_to_all"),
    [
        ({}, False),
        ({"address": "localhost"}, False),
        ({"address": "0.0.0.0", "token_env": "GAME_TOKEN"}, False),
        ({"address": "0.0.0.0", "token_file": "/run/token"}, False),
        ({"address": "0.0.0.0"}, True),
        ({"address": "::", "token_env": None}, True),
    ],
)
def test_a_server_of_a_pod_that_others_reach_has_a_token(
    document: Any, given: dict[str, Any], open_to_all: bool
) -> None:
    asked = job(document, PLAYED | {"input_config": given})
    assert config_of(asked).input_config == given, "on a machine of one's own it is warned of"
    if open_to_all:
        with pytest.raises(ConfigError, match="no token. Use spec.externalInput, or give token_env or token_file"):
            cluster_config_of(asked)
    else:
        assert cluster_config_of(asked).input_config == given
