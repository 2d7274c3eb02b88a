"""Start a local Ray or join a cluster; stop only what was started here."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import socket
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import ray
from ray._private import ray_constants
from ray._private import worker as ray_worker

from reef.distributed.node_settings import NODE_CHECKS as NODE_CHECKS
from reef.distributed.node_settings import QUIET, host_and_port
from reef.errors import ClusterUnavailableError, ConfigError, ResourceError, sentence
from reef.output import output_shown
from reef.run.signals import sigterm_as_before

if TYPE_CHECKING:
    from reef.api.pods import RuntimeEnv

log = logging.getLogger(__name__)
CONNECT_S = 5.0
NODES_S = 60.0
AUTH = "RAY_AUTH_MODE"  # which Ray sets to "token" where its file with a token is there


class RaySession(contextlib.ExitStack):
    """A connection to Ray that ends with `stop`, or with the `with` block; so does a cluster that was started for it.

    A Ray that was there before stays.
    """

    embedded = False  # whether the cluster was started for this session
    stop = contextlib.ExitStack.close


def start(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    object_store_memory: int | None = None,
    num_nodes: int | None = None,
    dashboard: bool = False,
    runtime_env: RuntimeEnv | None = None,
    show_output: bool = False,
) -> RaySession:
    """Join the cluster at `address` ("auto", "host:port"), or start a Ray of this machine on its loopback device.

    A Ray that runs in this process already is used as it is. `num_cpus`, `num_gpus`, `resources` and
    `object_store_memory` (bytes) describe a local Ray; None lets Ray count. `num_nodes`: nodes of that kind on this
    machine, in place of one; `dashboard`: whether it serves Ray's dashboard. `runtime_env` is that
    of a job document, for a cluster that is joined. What workers of a local Ray print goes to stderr;
    `show_output` also prints what Ray itself says, and what is printed in a cluster that is joined.

    Raises:
        ResourceError: no cluster answers (ClusterUnavailableError), it has another Ray, or nodes here do not come up.
        ConfigError: both an address and a size were given, or a dashboard that is not installed.
    """
    os.environ.update({key: os.environ.get(key, value) for key, value in QUIET.items()})
    if not show_output:
        # Ray prints what killed an actor's process to stdout, among results; the actor's group says it already
        ray_worker.print_to_stdstream = lambda data, **_: log.debug("\n".join(data["lines"]))
    session = RaySession()
    if ray.is_initialized():
        return session
    counts = {"num_cpus": num_cpus, "num_gpus": num_gpus}
    sizes: dict[str, Any] = {key: None if count is None else math.ceil(count) for key, count in counts.items()}
    sizes |= {"resources": resources, "object_store_memory": object_store_memory}
    described = sizes | {"num_nodes": num_nodes, "dashboard": dashboard or None}
    if address is not None:
        if given := [key for key, value in described.items() if value is not None]:
            raise ConfigError(f"address={address!r} names a running cluster, whose size {given} cannot set. Drop one.")
        with sigterm_as_before():
            _join(address, runtime_env, show_output)
        session.callback(ray.shutdown)
        return session
    _check_dashboard(dashboard)
    # Ray binds its services to 127.0.0.1 where this is False, but reads the variable behind it only when imported
    ray_constants.ENABLE_RAY_CLUSTER = False
    with sigterm_as_before(), session:
        session.enter_context(output_shown())
        if num_nodes is not None and num_nodes > 1:
            local: dict[str, Any] = {"address": _nodes_here(session, num_nodes, dashboard, sizes)}
        else:
            local = {"address": "local", **sizes, "include_dashboard": dashboard}
        context = ray.init(
            **local, runtime_env=_quoted_python(), log_to_driver=show_output, logging_level=logging.ERROR
        )
        session.callback(ray.shutdown)
        if dashboard:
            _tell_of_dashboard(context)
        started = session.pop_all()
    started.embedded = True
    return started


def _tell_of_dashboard(context: Any) -> None:
    """Say where it is, how Ray's own commands reach it, and how to get the token if it asks for one."""
    has_token = os.environ.get(AUTH) == "token"
    variable = f"{AUTH}=token " if has_token else ""
    hint = f"; {variable}ray get-auth-token prints its token" if has_token else ""
    url = f"http://{context.dashboard_url}"
    log.warning("Ray's dashboard: %s (%sray list objects --address %s%s)", url, variable, url, hint)


def _check_dashboard(wanted: bool) -> None:
    if wanted and find_spec("aiohttp_cors") is None:
        raise ConfigError("--ray-ui: Ray's dashboard is not installed. Add it: pip install 'ray[default]'.")


def _nodes_here(session: RaySession, count: int, dashboard: bool, sizes: dict[str, Any]) -> str:
    """Start a cluster of `count` equal nodes on this machine, which ends with the session; returns its address."""
    from ray.cluster_utils import Cluster

    node = {key: value for key, value in sizes.items() if value is not None}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": dashboard})
    session.callback(cluster.shutdown)
    for _ in range(count - 1):
        cluster.add_node(**node)
    try:
        cluster.wait_for_nodes(NODES_S)
    except TimeoutError as error:
        raise ResourceError(
            f"--ray-num-nodes {count}: Ray's nodes on this machine were not up after {NODES_S:g} s: {sentence(error)} "
            "Take fewer, or nodes with fewer CPUs."
        ) from error
    return str(cluster.address)


def _join(address: str, runtime_env: RuntimeEnv | None, show_output: bool) -> None:
    own = (runtime_env.model_dump(exclude_defaults=True) if runtime_env else {}) | _quoted_python()
    try:
        if address.rpartition(":")[2].isdecimal():
            socket.create_connection(host_and_port(address), CONNECT_S).close()  # Ray itself would try for minutes
        ray.init(address=address, runtime_env=own, log_to_driver=show_output, logging_level=logging.ERROR)
    except (OSError, RuntimeError) as error:
        other_version = "Version mismatch" in str(error)  # which no retry heals
        raise (ResourceError if other_version else ClusterUnavailableError)(
            f"no Ray cluster answers at {address!r}: {sentence(error)} Is its head up, and the port 6379?"
        ) from error


def _quoted_python() -> dict[str, Any]:
    """What makes Ray's workers start where the path of Python holds a space; else empty.

    Ray starts a worker that has variables of its own, as every trial of a sweep has, by `bash -c "exec <Python> ..."`
    and leaves this one word unquoted.
    """
    quoted = shlex.quote(sys.executable)
    return {"py_executable": quoted} if quoted != sys.executable else {}
