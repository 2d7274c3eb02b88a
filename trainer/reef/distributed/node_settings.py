"""The settings with which the processes of Ray's nodes start; free of Ray itself, as a worker pod does not load it."""

from __future__ import annotations

from typing import Any

QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # an actor without GPUs sees none, as its settings say
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
NODE_CHECKS = {  # for the process that starts a cluster's head: notice a lost node in about 5 seconds instead of 30
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
POOL = "pool:"  # begins the name of the resource, one on each node, that says which pool of a job the node is of
ELASTIC = (
    "pool:head"  # on the head's node: nodes come and go; all of them together were checked before the head was started
)
WORKERS_LABEL = "reef.dev/workers"  # on nodes that take rollout and evaluation workers, with one of these:
OF_POOL, OF_HEAD = "of-pool", "of-head"
START_HOOK = {"RAY_START_HOOK": f"{__name__}.leave_out_helpers"}  # called by `ray start`


def address_of(host: str, port: int) -> str:
    """Return host and port as Ray takes them: an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(address: str) -> tuple[str, int]:
    """The reverse of `address_of`; ValueError for an address without a port."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def leave_out_helpers(parameters: Any, head: bool) -> None:
    """Take out of `ray start` what is not used: the autoscaler, and the server for Ray's client, which has no option.

    Args:
        parameters: Ray's `RayParams`, changed in place.
        head: whether the node is the head's.
    """
    parameters.no_monitor = True
    parameters.ray_client_server_port = None
