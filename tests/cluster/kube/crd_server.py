"""The server of custom resources of a current Kubernetes, built once from Debian sid: unlike 1.20 it checks CEL rules.

It is upstream's k8s.io/apiextensions-apiserver, which kube-apiserver has inside as well. Debian has no newer
kube-apiserver than 1.20.2 (see `binaries`), but the libraries of the newest release, with a main package among them.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from kube.binaries import GO_BUILD
from kube.debian import apt_of, scratch_beside
from kube.progress import ClusterError, cache_folder, locked, run, say, stage

SUITE = "sid"
PROGRAM = "apiextensions-apiserver"
SOURCE = "golang-k8s-apiextensions-apiserver-dev"
# What is in the dependencies' dependencies, large, and not compiled in.
UNNEEDED = {
    "golang-github-aws-aws-sdk-go-v2-dev",
    "golang-github-cloudflare-circl-dev",
    "golang-github-klauspost-compress-dev",
    "golang-github-pierrec-lz4-dev",
    "golang-golang-x-tools",
    "golang-gonum-v1-plot-dev",
    "golang-google-api-dev",
    "golang-google-cloud-dev",
    "golang-mongodb-mongo-driver-dev",
}


def find_crd_server() -> Path:
    """The program, built first where it is missing; its folder is named for the release of Kubernetes, as in 1.36.4.

    Raises:
        ClusterError: it cannot be had here.
    """
    folder = cache_folder() / "crd-server"
    with locked(folder.with_suffix(".lock")):
        return newest(folder) or build(folder)


def newest(folder: Path) -> Path | None:
    """The program of the newest release in the cache."""
    found = folder.glob(f"[0-9]*/{PROGRAM}")
    return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".")], default=None)


def build(folder: Path) -> Path:
    """Build the program from the packages that sid has today."""
    if not shutil.which("apt-get"):
        raise ClusterError(f"apt-get is not there to fetch {SOURCE} of Debian {SUITE}")
    folder.mkdir(parents=True, exist_ok=True)
    with scratch_beside(folder / PROGRAM) as work:
        with stage(f"Fetching {SOURCE} of Debian {SUITE}, and what it needs"):
            tree, version = fetch(work)
        with stage(f"Building {PROGRAM} {version} (three minutes on two cores)"):
            made = work / "made" / PROGRAM
            made.parent.mkdir()
            compile_program(tree, version, made, work)
        made.parent.rename(folder / version)
    say(f"The program is in {folder / version}")
    return folder / version / PROGRAM


def fetch(work: Path) -> tuple[Path, str]:
    """The unpacked packages, of which nothing is installed, and the release of Kubernetes."""
    (work / "status").touch()  # as if nothing were installed here: all dependencies are listed
    apt = [*apt_of(SUITE, work), "-o", f"Dir::State::status={work / 'status'}"]
    listed = run([*apt, "install", "--no-install-recommends", "--print-uris", "-y", SOURCE, "golang-go"], timeout_s=120)
    names = {name for name in re.findall(r"^'\S+' (golang-[^_ ]+)_", listed, re.MULTILINE)} - UNNEEDED
    debs, tree = work / "debs", work / "tree"
    debs.mkdir()
    run([*apt, "download", *sorted(names)], timeout_s=900, cwd=debs)
    found = " ".join(path.name for path in debs.glob(f"{SOURCE}_*"))
    version = re.match(rf"{SOURCE}_0\.(\d+\.\d+)", found)
    if not version:
        raise ClusterError(f"{SOURCE} of Debian {SUITE} has no version of the form 0.36.4: {found or 'no package'}")
    for package in [*debs.iterdir()]:
        run(["dpkg-deb", "--extract", package, tree])
        package.unlink()
    return tree, f"1.{version[1]}"  # the libraries of 1.36.4 are 0.36.4


def compile_program(tree: Path, version: str, made: Path, work: Path) -> None:
    """Compile it with the compiler among the packages."""
    root = max((tree / "usr" / "lib").glob("go-1.*"), default=None)
    if root is None:
        raise ClusterError(f"there is no Go compiler among the packages that {SOURCE} of Debian {SUITE} needs")
    go = {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "GOROOT": str(root),
        "GOPATH": str(tree / "usr" / "share" / "gocode"),
        "GOCACHE": str(work / "go-cache"),
        "GOTMPDIR": str(work),
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
    }
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())])
    run([*GO_BUILD, "-ldflags", flags, "-o", made, f"k8s.io/{PROGRAM}"], timeout_s=1800, cwd=work, env=go)
