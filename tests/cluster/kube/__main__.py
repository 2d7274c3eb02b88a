"""`python -m kube up` and `python -m kube down`: a cluster that stays until it is told to go."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kube.binaries import check_machine
from kube.cluster import OwnCluster, given_cluster, machine_of
from kube.progress import ClusterError, NoClusterError, cache_folder, locked

USAGE = "usage: python -m kube up|down"


def name_of_cluster() -> str:
    """That of $KUBECONFIG if it is one of ours, $REEF_CLUSTER, or reef: clusters stand side by side."""
    ours, named = cache_folder() / "clusters", Path(os.environ.get("KUBECONFIG") or "/")
    if named.is_relative_to(ours):
        return named.relative_to(ours).parts[0]
    return os.environ.get("REEF_CLUSTER") or "reef"


def up() -> None:
    """Start the cluster, or take the one of $KUBECONFIG, and say how to use it."""
    given = given_cluster()
    if given is not None:
        print(given.kubectl("get", "nodes"), end="")
        print(f"This is the cluster of KUBECONFIG={given.kubeconfig}; the tests use it too.")
        return
    check_machine()
    name = name_of_cluster()
    with locked(cache_folder() / "clusters" / f"{name}.lock"):
        cluster = OwnCluster.start(name)
        (cluster.machine.state / "keep").touch()
    kubectl = cluster.kubectl("get", "nodes")
    network = cluster.machine.network
    print(f"\n{kubectl}")
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    print(f"export PATH={os.path.dirname(cluster.program)}:$PATH")
    print(f"\nPods ({network.pods}) and services ({network.services}) can be reached from here, by address.")
    print(f"Logs of its parts: {cluster.machine.state}/log. It stays until `make cluster-down`.")


def down() -> None:
    """Remove the cluster."""
    name = name_of_cluster()
    with locked(cache_folder() / "clusters" / f"{name}.lock"):
        machine_of(name).halt()


def main(arguments: list[str]) -> int:
    """Run one of the two; the code to exit with."""
    commands = {"up": up, "down": down}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        commands[arguments[0]]()
    except NoClusterError as reason:
        print(f"{reason}\nOr name another cluster: KUBECONFIG=~/.kube/config make cluster", file=sys.stderr)
        return 1
    except ClusterError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
