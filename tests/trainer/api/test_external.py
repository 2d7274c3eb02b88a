"""Who may play at a job's policy server: what the document says, and what is refused because it would let in all."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document
from reef.api.external import ExternalInput
from reef.errors import ConfigError

TOKEN = {"name": "game-policy"}
APPLICATIONS = [{"podSelector": {"matchLabels": {"app": "game"}}}]


def read(external: Any, **spec: Any) -> ExternalInput:
    fields = {"algorithm": "PPO", "environment": {"name": "external"}, "stop": {"training_iteration": 1}}
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    found = job_from_document(document | {"spec": fields | {"externalInput": external} | spec}).spec.external_input
    assert found is not None
    return found


def test_what_is_given_is_there() -> None:
    expression = {"key": "app", "operator": "In", "values": ["game", "robot"]}
    peers = [*APPLICATIONS, {"namespaceSelector": {}, "podSelector": {"matchExpressions": [expression]}}]
    given = {"tokenSecretRef": TOKEN | {"key": ".secret..txt"}, "from": peers}
    assert read(given).model_dump(by_alias=True, exclude_defaults=True) == given
    assert read({"tokenSecretRef": TOKEN, "from": APPLICATIONS}).token_secret_ref.key == "token"


def test_an_ingress_needs_no_pods_of_the_cluster() -> None:
    given = {"tokenSecretRef": TOKEN, "ingress": {"host": "game.example.com", "tlsSecretName": "game-tls"}}
    assert read(given).model_dump(by_alias=True, exclude_defaults=True) == given
    assert read({"tokenSecretRef": TOKEN, "from": APPLICATIONS, "ingress": {"host": "game"}}).from_ != []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"from": APPLICATIONS},
            r"spec.externalInput: tokenSecretRef is missing: without a token every pod that reaches the policy server "
            r"could change what is learned. Make a Secret with `kubectl create secret generic NAME",
        ),
        ({"tokenSecretRef": None, "from": APPLICATIONS}, "tokenSecretRef is missing"),
        ({"tokenSecretRef": {}, "from": APPLICATIONS}, "spec.externalInput.tokenSecretRef.name: is missing"),
        (
            {"tokenSecretRef": {"name": "game", "key": "to ken"}, "from": APPLICATIONS},
            r"spec.externalInput.tokenSecretRef.key: .*a key of a Secret: letters, digits",
        ),
        *(
            ({"tokenSecretRef": {"name": "game", "key": key}, "from": APPLICATIONS}, "neither '.' alone nor '..'")
            for key in (".", "..", "..token")
        ),
        ({"tokenSecretRef": TOKEN}, r"spec.externalInput: from names no pods, which in a NetworkPolicy would let in"),
        ({"tokenSecretRef": TOKEN, "from": []}, r"from names no pods.*give a list such as \[\{podSelector"),
        ({}, "(?s)tokenSecretRef is missing.*from names no pods"),
        (
            {"tokenSecretRef": TOKEN, "from": [{}]},
            r"spec.externalInput.from\[0\]: selects nothing: give namespaceSelector, podSelector or both",
        ),
        (
            {"tokenSecretRef": TOKEN, "from": [{"podSelector": {"matchLabel": {"app": "game"}}}]},
            r"from\[0\].podSelector.matchLabel: is no field. Did you mean 'matchLabels'\?",
        ),
        (
            {"tokenSecretRef": TOKEN, "from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "="}]}}]},
            "matchExpressions.*operator",
        ),
        ({"tokenSecretRef": TOKEN, "from": APPLICATIONS, "port": 80}, "spec.externalInput.port: is no field"),
        ({"tokenSecretRef": TOKEN, "ingress": {}}, "spec.externalInput.ingress.host: is missing"),
        ({"tokenSecretRef": TOKEN, "ingress": None}, "from names no pods.*or an ingress"),
        (
            {"tokenSecretRef": TOKEN, "ingress": {"host": "https://game.example.com/"}},
            r"ingress.host.*'https://game.example.com/'.*a host name, such as game.example.com, without https://",
        ),
        ({"tokenSecretRef": TOKEN, "ingress": {"host": "10.0.0.1"}}, "ingress.host.*'10.0.0.1'.*a host name"),
        ({"tokenSecretRef": TOKEN, "ingress": {"host": "*.example.com"}}, "ingress.host.*a host name"),
        (
            {"tokenSecretRef": TOKEN, "ingress": {"host": "game", "className": "nginx"}},
            "spec.externalInput.ingress.className: is no field",
        ),
        ("yes", "spec.externalInput: should be a mapping, not 'yes'"),
    ],
)
def test_what_would_let_in_others_is_refused(given: Any, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read(given)


def test_a_sweep_has_many_policy_servers() -> None:
    tune = {"parameters": {"lr": {"grid": [0.1, 0.2]}}}
    with pytest.raises(ConfigError, match="externalInput leads to one policy server.*remove one of them"):
        read({"tokenSecretRef": TOKEN, "from": APPLICATIONS}, tune=tune)
