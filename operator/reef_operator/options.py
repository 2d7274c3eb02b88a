"""Command-line options of the operator; every flag can also be given as an environment variable REEF_OPERATOR_*."""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from reef.errors import ConfigError
from reef_operator.model import IngressSettings, Settings
from reef_operator.reading.forbidden import DEFAULT, FORBIDDABLE

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """All options of the runtime."""

    settings: Settings
    namespaces: tuple[str, ...]  # empty: all namespaces
    own_namespace: str
    name: str  # of this installation; its Leases are named after it
    identity: str  # unique among the operator's processes
    log_format: Literal["json", "text"]
    log_level: str
    dev: bool
    leader_election: bool
    listen: str
    metrics_port: int
    health_port: int
    workers: int
    api_rate: float
    api_burst: int
    resync_seconds: float
    poll_seconds: float

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """Namespaces to watch one by one; a single None means all namespaces."""
        return self.namespaces or (None,)

    @property
    def canary_namespace(self) -> str:
        """Namespace of the canary Lease, which the watches must deliver: one that is watched."""
        if not self.namespaces or self.own_namespace in self.namespaces:
            return self.own_namespace
        return self.namespaces[0]


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read flags; for a missing flag, read its environment variable.

    Raises:
        ConfigError: a variable has a wrong value, or the flags contradict each other.
        SystemExit: a flag is wrong, or --help was asked for.
    """
    given = parser(Variables(environment)).parse_args(arguments)
    if unknown := [name for name in given.forbid if name not in FORBIDDABLE]:
        raise ConfigError(
            f"--forbid (REEF_OPERATOR_FORBID): {unknown} cannot be forbidden; {', '.join(FORBIDDABLE)} can"
        )
    namespaces = tuple(dict.fromkeys(given.namespace or Variables(environment).words("NAMESPACES")))
    here = environment.get("POD_NAMESPACE") or own_namespace()
    if given.all_namespaces and given.namespace:
        raise ConfigError("--namespace and --all-namespaces exclude each other: give one of them")
    return Options(
        settings=Settings(
            trainer_image=given.trainer_image,
            image_pull_policy=given.image_pull_policy,
            cluster_domain=given.cluster_domain,
            linger_seconds=given.linger_seconds,
            default_pre_running_deadline_s=given.pre_running_deadline_seconds,
            forbidden=tuple(given.forbid),
            metrics_from=peers(given.metrics_from),
            operator_namespace=here,
            ingress=ingress_settings(given.ingress),
        ),
        namespaces=() if given.all_namespaces else namespaces,
        own_namespace=here,
        name=given.name,
        identity=environment.get("POD_NAME") or socket.gethostname(),
        **{name: getattr(given, name) for name in PLAIN},
    )


PLAIN = (
    "log_format",
    "log_level",
    "dev",
    "leader_election",
    "listen",
    "metrics_port",
    "health_port",
    "workers",
    "api_rate",
    "api_burst",
    "resync_seconds",
    "poll_seconds",
)


def parser(variables: Variables) -> argparse.ArgumentParser:
    """Return the parser, with defaults from the environment."""
    made = argparse.ArgumentParser(prog="reef-operator", description="Runs RLTrainingJobs on Kubernetes.")
    add, of = made.add_argument, variables
    add("--namespace", action="append", metavar="NAME", help="namespace to watch; repeatable")
    add("--all-namespaces", action="store_true", help="watch all namespaces (default without --namespace)")
    add("--name", default=of.text("NAME", "reef-operator"), help="name of this installation, and of its Leases")
    add("--trainer-image", default=of.text("TRAINER_IMAGE", "reef-trainer"), help="image of jobs that set none")
    add("--image-pull-policy", default=of.text("IMAGE_PULL_POLICY", "IfNotPresent"), help="of jobs that set none")
    add("--cluster-domain", default=of.text("CLUSTER_DOMAIN", "cluster.local"), help="DNS domain of the cluster")
    add(
        "--linger-seconds", type=int, default=int(of.number("LINGER_SECONDS", 30)), help="seconds a finished head stays"
    )
    add(
        "--pre-running-deadline-seconds",
        type=float,
        default=of.optional_number("PRE_RUNNING_DEADLINE_SECONDS"),
        help="jobs without a limit of their own fail if training has not begun after this many seconds",
    )
    add(
        "--forbid",
        type=lambda text: [word for word in text.split(",") if word != "nothing"],
        default=of.text("FORBID", ",".join(DEFAULT)),
        metavar="NAMES",
        help=f"forbidden in templates of jobs, comma-separated: nothing, or some of {', '.join(FORBIDDABLE)}",
    )
    add_network_flags(made, variables)
    add("--log-format", choices=("json", "text"), default=of.text("LOG_FORMAT", "json"), help="format of log lines")
    add("--log-level", choices=("debug", "info", "warning", "error"), default=of.text("LOG_LEVEL", "info"))
    add(
        "--dev", action="store_true", default=of.flag("DEV"), help="log in with a kubeconfig instead of a pod's account"
    )
    add("--leader-election", action="store_true", default=of.flag("LEADER_ELECTION"), help="wait for the Lease")
    add("--listen", default=of.text("LISTEN", all_addresses()), help="address of metrics and health")
    add("--metrics-port", type=int, default=int(of.number("METRICS_PORT", 8081)), help="port of /metrics")
    add("--health-port", type=int, default=int(of.number("HEALTH_PORT", 8082)), help="port of /healthz")
    add("--workers", type=int, default=int(of.number("WORKERS", 16)), help="jobs that are reconciled at the same time")
    add("--api-rate", type=float, default=of.number("API_RATE", 100), help="requests per second to the API server")
    add(
        "--api-burst", type=int, default=int(of.number("API_BURST", 200)), help="requests allowed at once after a pause"
    )
    add(
        "--resync-seconds",
        type=float,
        default=of.number("RESYNC_SECONDS", 240),
        help="seconds between two lists of all jobs",
    )
    add(
        "--poll-seconds",
        type=float,
        default=of.number("POLL_SECONDS", 5),
        help="seconds between two requests to a head",
    )
    return made


def add_network_flags(made: argparse.ArgumentParser, variables: Variables) -> None:
    """Add the flags that say who reaches heads."""
    add, of = made.add_argument, variables
    add(
        "--metrics-from",
        default=of.text("METRICS_FROM", "[]"),
        metavar="JSON",
        help="NetworkPolicyPeers that may read the metrics of heads, besides this operator; []: every pod",
    )
    add(
        "--ingress",
        default=of.text("INGRESS", ""),
        metavar="JSON",
        help="lets jobs ask for an Ingress: className, annotations, and from, the NetworkPolicyPeers of its controller",
    )


class Variables:
    """The environment variables REEF_OPERATOR_*."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str) -> str:
        """Return a variable, or the default if it is missing or empty."""
        return self._environment.get(f"REEF_OPERATOR_{name}", "").strip() or default

    def words(self, name: str) -> list[str]:
        """Return a comma-separated list."""
        return [word.strip() for word in self.text(name, "").split(",") if word.strip()]

    def optional_number(self, name: str) -> float | None:
        """Return a number, or None if the variable is missing or empty."""
        text = self.text(name, "")
        try:
            return float(text) if text else None
        except ValueError:
            raise ConfigError(f"REEF_OPERATOR_{name} is {text!r}, expected a number") from None

    def number(self, name: str, default: float) -> float:
        """A number."""
        found = self.optional_number(name)
        return default if found is None else found

    def flag(self, name: str) -> bool:
        """Return whether the variable is set to a true value."""
        text = self.text(name, "").lower()
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise ConfigError(f"REEF_OPERATOR_{name} is {text!r}, expected true or false")


def all_addresses() -> str:
    """Return the wildcard address of this machine: of IPv6, which includes IPv4, if available."""
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            return "::"
    except (OSError, ValueError):  # ValueError: the IPv6 socket does not accept IPv4
        return "0.0.0.0"  # noqa: S104 (a pod)


def from_json(text: str) -> Any:
    """Return the value of a JSON text; None if it is not valid JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def are_peers(found: Any) -> bool:
    """Whether a value is a list of mappings that are not empty, as NetworkPolicyPeers are."""
    return isinstance(found, list) and all(isinstance(peer, dict) and peer for peer in found)


def ingress_settings(text: str) -> IngressSettings | None:
    """Parse what all Ingresses have in common; None for an empty text."""
    if not text:
        return None
    given = from_json(text)
    found: dict[str, Any] = {"className": "", "annotations": {}, "from": []}
    found |= given if isinstance(given, dict) else {}
    annotations, is_known = found["annotations"], len(found) == 3
    texts = [found["className"], *annotations.values()] if isinstance(annotations, dict) else [None]
    if not is_known or not all(isinstance(each, str) for each in texts) or not are_peers(found["from"] or None):
        raise ConfigError(
            f"--ingress (REEF_OPERATOR_INGRESS) is {text!r}, expected a JSON object with from, a list of at least one "
            "NetworkPolicyPeer, and maybe className, a text, and annotations, texts by name; for example "
            '{"className": "nginx", "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": '
            '"ingress-nginx"}}}]}'
        )
    return IngressSettings(class_name=found["className"], annotations=annotations, controller=tuple(found["from"]))


def peers(text: str) -> tuple[Mapping[str, Any], ...]:
    """Parse a JSON list of NetworkPolicyPeers."""
    found = from_json(text)
    if not are_peers(found):
        raise ConfigError(
            f"--metrics-from (REEF_OPERATOR_METRICS_FROM) is {text!r}, expected a JSON list of NetworkPolicyPeers, "
            'for example [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]'
        )
    return tuple(found)


def own_namespace() -> str:
    """Return the namespace of this pod, or "default" outside of a pod."""
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else "default"
