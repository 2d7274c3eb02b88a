"""Debian's packages: installed on this machine, or unpacked into a folder of their own."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kube.progress import ClusterError, NoClusterError, cache_folder, locked, run, stage


def missing(packages: dict[str, str]) -> list[str]:
    """Names of the Debian packages whose file is not there."""
    return sorted({package for file, package in packages.items() if not Path(file).exists()})


def install(packages: dict[str, str]) -> None:
    """Install what is missing with apt-get."""
    wanted = missing(packages)
    if not wanted:
        return
    with locked(cache_folder() / "apt.lock"), stage(f"Installing {' '.join(wanted)}"), no_services():
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        try:
            run(["apt-get", "update"], timeout_s=300, env=quiet)
            run(["apt-get", "install", "-y", "--no-install-recommends", *wanted], timeout_s=1200, env=quiet)
        except ClusterError as problem:
            raise NoClusterError(f"these packages cannot be had: {problem}") from problem
    still = missing(packages)
    if still:
        raise ClusterError(f"apt-get installed {' '.join(still)}, but not the files that were expected")


@contextlib.contextmanager
def no_services() -> Iterator[None]:
    """Keep packages from starting containerd or etcd as services: the harness starts its own."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def unpacked(suite: str, *packages: str) -> Path:
    """A folder with the files of these packages of a Debian release, kept in the cache: nothing is installed.

    For programs that this machine's release has too old, and that need nothing but a C library.

    Raises:
        ClusterError: they cannot be had.
    """
    if not shutil.which("apt-get"):
        raise ClusterError(f"apt-get is not there to fetch {' '.join(packages)} of Debian {suite}")
    folder = cache_folder() / "debian" / f"{suite}-{'-'.join(packages)}"
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            with stage(f"Fetching {' '.join(packages)} of Debian {suite}"), scratch_beside(folder) as work:
                run([*apt_of(suite, work), "download", *packages], timeout_s=600, cwd=work)
                tree = work / "tree"
                for package in work.glob("*.deb"):
                    run(["dpkg-deb", "--extract", package, tree])
                tree.rename(folder)
    return folder


@contextlib.contextmanager
def scratch_beside(folder: Path) -> Iterator[Path]:
    """A folder that goes again, on the same disk."""
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        yield Path(work)


def apt_of(suite: str, work: Path, *, kind: str = "deb") -> list[str]:
    """The apt-get command that knows this release of Debian only, and checks its signature.

    Its lists lie in `work`; the machine's own stay as they are, which mostly have neither other releases nor sources.
    """
    lists, cache = work / "lists", work / "cache"
    for made in (lists / "partial", cache / "archives" / "partial"):
        made.mkdir(parents=True)
    (work / "sources.list").write_text(f"{kind} {debian_mirror()} {suite} main\n")
    options = {
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": lists,
        "Dir::Cache": cache,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    run([*apt, "update"], timeout_s=300, cwd=work)
    return apt


def debian_mirror() -> str:
    """Where this machine gets Debian's packages from."""
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if file.suffix in (".list", ".sources") and file.exists():
            found = re.search(r"^(?:deb (?:\[[^]]*\] )?|URIs: *)(\S+/debian)/?(?:\s|$)", file.read_text(), re.MULTILINE)
            if found:
                return found[1]
    return "http://deb.debian.org/debian"
