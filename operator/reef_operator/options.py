"""How the operator is started: every flag can be given as an environment variable REEF_OPERATOR_* too."""

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
from reef_operator.model import Settings
from reef_operator.reading.forbidden import DEFAULT, FORBIDDABLE

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything the runtime must be told."""

    settings: Settings
    namespaces: tuple[str, ...]  # empty: all of them
    own_namespace: str
    name: str  # of this installation: its Leases are called after it
    identity: str  # of this process among several
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
        """Namespaces to look at one by one; a single None for all of them."""
        return self.namespaces or (None,)

    @property
    def canary_namespace(self) -> str:
        """Where the Lease is that watches must deliver: a namespace that is watched."""
        if not self.namespaces or self.own_namespace in self.namespaces:
            return self.own_namespace
        return self.namespaces[0]


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Read flags, and for those that are missing the environment.

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
    """The flags, with defaults from the environment."""
    made = argparse.ArgumentParser(prog="reef-operator", description="Runs RLTrainingJobs on Kubernetes.")
    add, of = made.add_argument, variables
    add("--namespace", action="append", metavar="NAME", help="look for jobs here; repeatable")
    add("--all-namespaces", action="store_true", help="look for jobs everywhere (the default without --namespace)")
    add("--name", default=of.text("NAME", "reef-operator"), help="name of this installation, and of its Leases")
    add("--trainer-image", default=of.text("TRAINER_IMAGE", "reef-trainer"), help="image of jobs that name none")
    add("--image-pull-policy", default=of.text("IMAGE_PULL_POLICY", "IfNotPresent"), help="of jobs that name none")
    add("--cluster-domain", default=of.text("CLUSTER_DOMAIN", "cluster.local"), help="DNS domain of the cluster")
    add(
        "--linger-seconds", type=int, default=int(of.number("LINGER_SECONDS", 30)), help="a finished head stays so long"
    )
    add(
        "--pre-running-deadline-seconds",
        type=float,
        default=of.optional_number("PRE_RUNNING_DEADLINE_SECONDS"),
        help="jobs that name none fail after waiting so long for training to begin",
    )
    add(
        "--forbid",
        type=lambda text: [word for word in text.split(",") if word != "nothing"],
        default=of.text("FORBID", ",".join(DEFAULT)),
        metavar="NAMES",
        help=f"what templates of jobs may not hold, with commas: nothing, or some of {', '.join(FORBIDDABLE)}",
    )
    add(
        "--metrics-from",
        default=of.text("METRICS_FROM", "[]"),
        metavar="JSON",
        help="NetworkPolicyPeers that may read the metrics of heads, beside this operator; []: everybody",
    )
    add("--log-format", choices=("json", "text"), default=of.text("LOG_FORMAT", "json"), help="form of log lines")
    add("--log-level", choices=("debug", "info", "warning", "error"), default=of.text("LOG_LEVEL", "info"))
    add(
        "--dev", action="store_true", default=of.flag("DEV"), help="log in with a kubeconfig instead of a pod's account"
    )
    add("--leader-election", action="store_true", default=of.flag("LEADER_ELECTION"), help="wait for a Lease")
    add("--listen", default=of.text("LISTEN", all_addresses()), help="address of metrics and health")
    add("--metrics-port", type=int, default=int(of.number("METRICS_PORT", 8081)), help="port of /metrics")
    add("--health-port", type=int, default=int(of.number("HEALTH_PORT", 8082)), help="port of /healthz")
    add("--workers", type=int, default=int(of.number("WORKERS", 16)), help="jobs that are looked at at a time")
    add("--api-rate", type=float, default=of.number("API_RATE", 100), help="requests per second to the API server")
    add("--api-burst", type=int, default=int(of.number("API_BURST", 200)), help="requests at once after a pause")
    add("--resync-seconds", type=float, default=of.number("RESYNC_SECONDS", 240), help="all jobs are listed so often")
    add("--poll-seconds", type=float, default=of.number("POLL_SECONDS", 5), help="heads are asked so often")
    return made


class Variables:
    """The environment variables REEF_OPERATOR_*."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str) -> str:
        """The variable, or the default where it is missing or empty."""
        return self._environment.get(f"REEF_OPERATOR_{name}", "").strip() or default

    def words(self, name: str) -> list[str]:
        """A list with commas."""
        return [word.strip() for word in self.text(name, "").split(",") if word.strip()]

    def optional_number(self, name: str) -> float | None:
        """A number, or None where the variable is missing or empty."""
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
        """Whether the variable says yes."""
        text = self.text(name, "").lower()
        if text in TRUE or text in FALSE:
            return text in TRUE
        raise ConfigError(f"REEF_OPERATOR_{name} is {text!r}, expected true or false")


def all_addresses() -> str:
    """The address that stands for all of this pod's: of IPv6, which takes in IPv4, where the machine has it."""
    try:
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True):
            return "::"
    except (OSError, ValueError):  # the latter: it takes no IPv4 there
        return "0.0.0.0"  # noqa: S104 (a pod)


def peers(text: str) -> tuple[Mapping[str, Any], ...]:
    """Read a list of NetworkPolicyPeers."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(peer, dict) for peer in found):
        raise ConfigError(
            f"--metrics-from (REEF_OPERATOR_METRICS_FROM) is {text!r}, expected a JSON list of NetworkPolicyPeers, "
            'for example [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]'
        )
    return tuple(found)


def own_namespace() -> str:
    """The namespace of the pod that we run in, or default outside of one."""
    return OWN_NAMESPACE.read_text().strip() if OWN_NAMESPACE.exists() else "default"
