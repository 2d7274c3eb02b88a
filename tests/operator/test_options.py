"""Flags and environment variables."""

from __future__ import annotations

import socket
from unittest.mock import Mock

import pytest

from reef.errors import ConfigError
from reef_operator import options
from reef_operator.model import IngressSettings
from reef_operator.options import parse
from reef_operator.reading.forbidden import DEFAULT


def test_flags_come_before_variables_and_variables_before_defaults():
    environment = {"REEF_OPERATOR_TRAINER_IMAGE": "from-env", "REEF_OPERATOR_WORKERS": "3", "REEF_OPERATOR_LISTEN": ""}
    parsed = parse(["--trainer-image", "from-flag"], environment)
    assert parsed.settings.trainer_image == "from-flag"
    assert parsed.workers == 3
    assert parsed.listen in ("0.0.0.0", "::")
    assert parsed.log_format == "json"
    assert not parsed.leader_election


def test_it_listens_at_all_addresses_of_both_families_and_without_ipv6_at_those_of_ipv4(monkeypatch):
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
    assert parse([], {}).listen == "::"
    monkeypatch.setattr(options.socket, "create_server", Mock(side_effect=OSError(97, "no such family")))
    assert parse([], {}).listen == "0.0.0.0"


def test_namespaces():
    assert parse([], {}).scopes == (None,)
    assert parse(["--namespace", "a", "--namespace", "b"], {}).scopes == ("a", "b")
    assert parse([], {"REEF_OPERATOR_NAMESPACES": "a, b,a"}).scopes == ("a", "b")
    assert parse(["--all-namespaces"], {"REEF_OPERATOR_NAMESPACES": "a"}).scopes == (None,)
    with pytest.raises(ConfigError, match="exclude each other"):
        parse(["--all-namespaces", "--namespace", "a"], {})


def test_what_is_forbidden_has_a_name():
    assert parse([], {}).settings.forbidden == DEFAULT
    assert parse(["--forbid=hostPID"], {"REEF_OPERATOR_FORBID": "hostIPC"}).settings.forbidden == ("hostPID",)
    assert parse([], {"REEF_OPERATOR_FORBID": "nothing"}).settings.forbidden == ()
    with pytest.raises(ConfigError, match="'hostpath'.* cannot be forbidden; serviceAccountName"):
        parse(["--forbid=hostpath"], {})


def test_readers_of_metrics_are_peers_of_a_network_policy():
    peer = {"namespaceSelector": {}}
    settings = parse([], {"REEF_OPERATOR_METRICS_FROM": '[{"namespaceSelector": {}}]', "POD_NAMESPACE": "own"}).settings
    assert (settings.metrics_from, settings.operator_namespace) == ((peer,), "own")
    assert parse([], {}).settings.metrics_from == ()
    for wrong in ("monitoring", "{}", '["monitoring"]', "[{}]"):
        with pytest.raises(ConfigError, match="expected a JSON list of NetworkPolicyPeers"):
            parse([f"--metrics-from={wrong}"], {})


def test_ingresses_are_made_only_if_their_controller_is_let_in():
    assert parse([], {}).settings.ingress is None
    peer = {"namespaceSelector": {}}
    found = parse([], {"REEF_OPERATOR_INGRESS": '{"from": [{"namespaceSelector": {}}], "annotations": {"a": "b"}}'})
    assert found.settings.ingress == IngressSettings(class_name="", annotations={"a": "b"}, controller=(peer,))
    flag = ["--ingress", '{"className": "nginx", "from": [{"namespaceSelector": {}}]}']
    assert parse(flag, {}).settings.ingress == IngressSettings(class_name="nginx", annotations={}, controller=(peer,))


@pytest.mark.parametrize(
    "wrong",
    [
        "nginx",
        "{}",
        '{"from": []}',
        '{"from": ["nginx"]}',
        '{"from": [{}]}',
        '{"from": [{"podSelector": {}}], "class": "nginx"}',
        '{"from": [{"podSelector": {}}], "className": 1}',
        '{"from": [{"podSelector": {}}], "annotations": {"a": 1}}',
        '{"from": [{"podSelector": {}}], "annotations": "a"}',
    ],
)
def test_wrong_settings_of_ingresses_are_shown_with_an_example(wrong):
    with pytest.raises(ConfigError, match=r"--ingress \(REEF_OPERATOR_INGRESS\) is .*expected a JSON object with from"):
        parse([f"--ingress={wrong}"], {})


def test_the_canary_is_where_a_watch_looks():
    own = {"POD_NAMESPACE": "operators"}
    assert parse([], own).canary_namespace == "operators"
    assert parse(["--namespace", "a"], own).canary_namespace == "a"
    assert parse(["--namespace", "a", "--namespace", "operators"], own).canary_namespace == "operators"


@pytest.mark.parametrize(
    ("name", "value"), [("WORKERS", "many"), ("LEADER_ELECTION", "perhaps"), ("PRE_RUNNING_DEADLINE_SECONDS", "1h")]
)
def test_a_wrong_variable_is_named(name, value):
    with pytest.raises(ConfigError, match=f"REEF_OPERATOR_{name} is '{value}'"):
        parse([], {f"REEF_OPERATOR_{name}": value})
