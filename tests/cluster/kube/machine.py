"""The node as a machine inside this machine, with network, mounts and process numbers of its own.

Everything of the cluster runs in namespaces that hang on one process, `init`. Its ports, its bridge, its iptables
rules, its mounts and its processes are therefore its own: nothing collides with what this machine runs, two clusters
stand side by side, and killing `init` removes all of it without a trace, even after the tests were killed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube.progress import ClusterError, locked, run, wait_until

HOST = Path("/run/reef-clusters")  # what all clusters of this machine share, whatever their caches are
CGROUPS = Path("/sys/fs/cgroup")
# What the kubelet sets for the whole kernel; put back when the node goes.
KERNEL_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
MOUNTED_OVER = ("/var/lib/kubelet", "/var/lib/cni")  # the kubelet and CNI write there whatever one tells them

INIT = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock "$STATE/var-log"
mount --bind "$STATE/var-log" /var/log
for folder in $MOUNTED_OVER; do mount -t tmpfs tmpfs $folder; done
ip link set lo up
touch "$STATE/init-ready"
while :; do sleep 3600; done
"""


@dataclass(frozen=True)
class Network:
    """Addresses of one cluster: all of 10.`number`.0.0/16, which nothing else on this machine uses."""

    number: int

    @property
    def whole(self) -> str:
        return f"10.{self.number}.0.0/16"

    @property
    def pods(self) -> str:
        return f"10.{self.number}.0.0/20"

    @property
    def bridge(self) -> str:
        return f"10.{self.number}.0.1"

    @property
    def services(self) -> str:
        return f"10.{self.number}.128.0/20"

    @property
    def first_service(self) -> str:
        return f"10.{self.number}.128.1"

    @property
    def node(self) -> str:
        return f"10.{self.number}.255.2"

    @property
    def host(self) -> str:
        """This machine's own address towards the pods: a process of the tests can be reached there."""
        return f"10.{self.number}.255.1"

    @property
    def link(self) -> str:
        """Name of this machine's end of the cable."""
        return f"reef{self.number}"


def started_at(pid: int) -> str:
    """When a process began, in ticks since boot; empty if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


class PidFile:
    """A process that outlives this one, known by its number and when it began, so that a reused number is no match."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, pid: int) -> None:
        self.path.write_text(f"{pid} {started_at(pid)}")

    @property
    def pid(self) -> int | None:
        """Its number while it runs."""
        with contextlib.suppress(OSError, ValueError):
            pid, began = self.path.read_text().split(" ")
            if began and started_at(int(pid)) == began:
                return int(pid)
        return None

    def signal(self, number: signal.Signals, *, children: bool = False) -> None:
        """Send a signal to it, or to its children."""
        pid = self.pid
        if pid is None:
            return
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text() if children else str(pid)
        for each in listed.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), number)


class Machine:
    """Namespaces, network and processes of one node.

    Args:
        state: folder for everything of this node; made when it starts, removed when it stops.
        name: distinguishes the nodes of one machine.
    """

    def __init__(self, state: Path, name: str) -> None:
        if state.is_relative_to("/run"):
            raise ClusterError(f"the folder {state} lies in /run, which the node covers: point $REEF_CACHE elsewhere")
        self.state = state
        self.name = name
        self._init = PidFile(state / "init.pid")

    @property
    def running(self) -> bool:
        return self._init.pid is not None

    @property
    def network(self) -> Network:
        """Addresses of the running machine."""
        return Network(int((self.state / "network").read_text()))

    @property
    def cgroup(self) -> str:
        return f"/reef-{self.name}"

    def boot(self) -> None:
        """Make the namespaces, the network and the control groups."""
        for folder in ("log", "pid", "kubelet"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        with locked(HOST / "lock", timeout_s=120):
            self._remember_host()
            self._start_init()
            self._connect(Network(free_network()))
        self._make_cgroups()

    def _start_init(self) -> None:
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        log = self.state / "log" / "init.log"
        with log.open("w") as out:
            outside = subprocess.Popen(
                [*command, "sh", "-c", INIT],
                env={**os.environ, "STATE": str(self.state), "MOUNTED_OVER": " ".join(MOUNTED_OVER)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )
        wait_until("the node's namespaces", (self.state / "init-ready").exists, timeout_s=10, poll_s=0.02, log=log)
        (inside,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
        self._init.write(int(inside))
        PidFile(HOST / f"{inside}.pid").write(int(inside))

    def _connect(self, network: Network) -> None:
        """A cable between this machine and the node; pods and services of the cluster are reached through it."""
        run(["ip", "link", "add", network.link, "type", "veth", "peer", "name", "eth0", "netns", str(self._init.pid)])
        run(["ip", "addr", "add", f"{network.host}/30", "dev", network.link])
        run(["ip", "link", "set", network.link, "up"])
        self.run(["ip", "addr", "add", f"{network.node}/30", "dev", "eth0"])
        self.run(["ip", "link", "set", "eth0", "up"])
        run(["ip", "route", "add", network.whole, "via", network.node])
        # A default route, for programs that look for one; nothing is forwarded beyond this machine.
        self.run(["ip", "route", "add", "default", "via", network.host])
        # The kubelet asks for a cloud's metadata when it starts, and would wait six seconds for nobody.
        self.run(["ip", "route", "add", "unreachable", "169.254.0.0/16"])
        self.run(["ip", "link", "add", "cni0", "type", "bridge"])
        self.run(["ip", "addr", "add", f"{network.bridge}/20", "dev", "cni0"])
        self.run(["ip", "link", "set", "cni0", "up"])
        self.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
        # Answers of a pod to its neighbour have to pass the rules that translate service addresses.
        self.run(["sh", "-c", "! [ -e /proc/sys/net/bridge ] || echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables"])
        (self.state / "network").write_text(str(network.number))

    def _cgroup_folders(self) -> list[Path]:
        roots = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else [p for p in CGROUPS.iterdir() if p.is_dir()]
        return [root / self.cgroup[1:] for root in roots if not root.is_symlink()]

    def _make_cgroups(self) -> None:
        for folder in self._cgroup_folders():
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # version 1: empty in a new group, which then takes no process
                if (folder / name).exists() and not (folder / name).read_text().strip():
                    (folder / name).write_text((folder.parent / name).read_text())

    def _entered(self, command: Sequence[str | Path]) -> list[str]:
        pid = self._init.pid
        if pid is None:
            raise ClusterError(f"the cluster {self.name!r} is not running")
        return ["nsenter", "-t", str(pid), "-n", "-m", "-p", "--", *(str(word) for word in command)]

    def run(self, command: Sequence[str | Path], *, timeout_s: float = 60, stdin: str | None = None) -> str:
        """Run a command inside, like `progress.run`."""
        return run(self._entered(command), timeout_s=timeout_s, stdin=stdin)

    def start(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Start a program inside that outlives this process; nothing if it runs already."""
        if self.process(name).pid:
            return
        with self.log(name).open("a") as out:
            program = subprocess.Popen(
                self._entered(command),
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd="/",
            )
        self.process(name).write(program.pid)

    def stop(self, name: str, *, timeout_s: float = 15) -> None:
        """Stop a program; one that takes too long is killed."""
        process = self.process(name)
        process.signal(signal.SIGTERM, children=True)
        try:
            wait_until(f"{name} to stop", lambda: process.pid is None, timeout_s=timeout_s)
        except ClusterError:
            process.signal(signal.SIGKILL, children=True)
            wait_until(f"{name} to be killed", lambda: process.pid is None, timeout_s=30)

    def process(self, name: str) -> PidFile:
        """The program's process (nsenter, whose only child it is)."""
        return PidFile(self.state / "pid" / name)

    def log(self, name: str) -> Path:
        """What the program printed."""
        return self.state / "log" / f"{name}.log"

    def halt(self) -> None:
        """Kill everything inside and remove every trace; also after a start that did not get far."""
        network_file = self.state / "network"
        self._init.signal(signal.SIGKILL)
        wait_until("the node's processes to end", lambda: not self.running, timeout_s=30)
        if network_file.exists():
            link = Path("/sys/class/net", self.network.link)
            with contextlib.suppress(ClusterError):  # connections that were cut keep the namespace for a while
                run(["ip", "link", "delete", link.name])
            wait_until(f"the interface {link.name} to vanish", lambda: not link.exists(), timeout_s=30)
        wait_until("the node's control groups to be empty", self._remove_cgroups, timeout_s=30)
        shutil.rmtree(self.state, ignore_errors=True)
        with locked(HOST / "lock", timeout_s=120):
            self._restore_host()

    def _remove_cgroups(self) -> bool:
        for top in self._cgroup_folders():
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(FileNotFoundError):
                    Path(folder).rmdir()  # busy until the last process is gone: an OSError, so this is tried again
        return True

    def _remember_host(self) -> None:
        """Write down what all clusters of this machine change outside of their namespaces; the first of them does."""
        if (HOST / "before.json").exists():
            return
        settings = {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS}
        made = [folder for folder in MOUNTED_OVER if not Path(folder).exists()]
        (HOST / "before.json").write_text(json.dumps({"settings": settings, "made": made}))
        for folder in made:
            Path(folder).mkdir(parents=True)

    def _restore_host(self) -> None:
        """Undo it; the last of them does."""
        nodes = (PidFile(path) for path in HOST.glob("*.pid"))
        if not (HOST / "before.json").exists() or any(node.pid for node in nodes):
            return
        before = json.loads((HOST / "before.json").read_text())
        for name, value in before["settings"].items():
            if Path("/proc/sys", name).read_text() != value:
                Path("/proc/sys", name).write_text(value)
        for folder in before["made"]:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                Path(folder).rmdir()
        for path in (HOST / "before.json", *HOST.glob("*.pid")):  # not the lock: somebody may wait for it
            path.unlink()


def free_network() -> int:
    """The first of 10.200.0.0/16, 10.201.0.0/16, ... that overlaps with nothing this machine routes."""
    shown = run(["ip", "-4", "route", "show", "table", "all"])
    routes = [ipaddress.ip_network(text, strict=False) for text in re.findall(r"\b\d+\.\d+\.\d+\.\d+(?:/\d+)?", shown)]
    taken = [route for route in routes if route.prefixlen > 1]
    for number in range(200, 255):
        if not any(ipaddress.ip_network(Network(number).whole).overlaps(route) for route in taken):
            return number
    raise ClusterError("every network from 10.200.0.0/16 to 10.254.0.0/16 overlaps with a route of this machine")
