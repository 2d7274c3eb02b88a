"""Images, made with buildah, kept between runs, and made again only when what they are made of changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kube.binaries import SUITE
from kube.debian import debian_mirror
from kube.progress import ClusterError, cache_folder, home_folder, locked, run, stage

ROOT = Path(__file__).parents[3]
PAUSE = "localhost/reef-pause:1"
PAUSE_PROGRAM = """
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
static void on_signal(int number) { if (number == SIGCHLD) while (waitpid(-1, 0, WNOHANG) > 0); else _exit(0); }
int main(void) { signal(SIGCHLD, on_signal); signal(SIGTERM, on_signal); signal(SIGINT, on_signal); for (;;) pause(); }
"""
BASE_PACKAGES = "ca-certificates,python3,python3-venv"
LEFT_BEHIND = "var/cache/apt/* var/lib/apt/lists/*"  # by debootstrap; the Dockerfile's own base has none of it
BASE = f"localhost/reef-base:{hashlib.sha256(f'{SUITE} {BASE_PACKAGES} {LEFT_BEHIND}'.encode()).hexdigest()[:12]}"
KEPT = 2  # images per target
KEPT_LAYERS = 200  # of all builds together; then those of no image go, and the next build takes as long as the first


class ImageStore:
    """Buildah's images in a folder of the cache.

    Args:
        folder: of the images.
        project: folder with the project's Dockerfile.
    """

    def __init__(self, folder: Path | None = None, project: Path = ROOT) -> None:
        self._folder = folder or cache_folder() / "images"
        self._project = project

    def _buildah(self, *arguments: str | Path, timeout_s: float = 600) -> str:
        driver = "vfs" if file_system(self._folder) == "overlay" else "overlay"  # no overlay on an overlay
        places = ["--root", f"{self._folder}/root", "--runroot", f"{self._folder}/run", "--storage-driver", driver]
        return run(["buildah", *places, *arguments], timeout_s=timeout_s, cwd=self._folder)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / "lock"):
            yield

    def has(self, image: str) -> bool:
        """Whether the image has been made."""
        self._folder.mkdir(parents=True, exist_ok=True)
        listed = self._buildah("images", "--format", "{{.Name}}:{{.Tag}}")
        return image in listed.split()

    def described(self, image: str) -> tuple[float, dict[str, Any]]:
        """Size in MB, and what the image says of itself: User, Labels and so on, as OCI calls them."""
        size, unit = self._buildah("images", "--format", "{{.Size}}", image).split()
        document = json.loads(self._buildah("inspect", "--type", "image", image))
        return float(size) * {"KB": 0.001, "MB": 1.0, "GB": 1000.0}[unit], document["OCIv1"]["config"]

    def pause(self) -> str:
        """The container that holds a pod's namespaces."""
        with self._working():
            if not self.has(PAUSE):
                with tempfile.TemporaryDirectory() as folder, stage(f"Making the image {PAUSE}"):
                    Path(folder, "pause.c").write_text(PAUSE_PROGRAM)
                    run(["gcc", "-Os", "-static", "-s", "-o", f"{folder}/pause", f"{folder}/pause.c"])
                    Path(folder, "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
                    self._buildah("bud", "--isolation", "chroot", "-t", PAUSE, folder)
        return PAUSE

    def base(self) -> str:
        """Debian with Python, which stands in for the Dockerfile's base where no registry can be reached."""
        with self._working():
            if not self.has(BASE):
                with tempfile.TemporaryDirectory() as folder, stage(f"Making the image {BASE} with debootstrap"):
                    tree = Path(folder, "tree")
                    options = ["--variant=minbase", f"--include={BASE_PACKAGES}"]
                    run(["debootstrap", *options, SUITE, tree, debian_mirror()], timeout_s=900)
                    run(["sh", "-c", f"rm -rf {LEFT_BEHIND}"], cwd=tree)
                    Path(folder, "Dockerfile").write_text('FROM scratch\nCOPY tree /\nCMD ["/bin/sh"]\n')
                    self._buildah("bud", "--isolation", "chroot", "-t", BASE, folder)
        return BASE

    def project(self, target: str) -> str:
        """A target of the project's Dockerfile, named after the hash of everything that goes into it.

        The Dockerfile takes its base from `ARG BASE_IMAGE` and a folder of wheels from `ARG PIP_FIND_LINKS`. This
        machine's pip settings and certificates are mounted while it is built, and are no part of the image.
        """
        dockerfile = self._project / "Dockerfile"
        if not dockerfile.exists():
            raise ClusterError(f"there is no {dockerfile}, so there is no image {target!r}")
        base = self.base()
        image = f"localhost/reef-{target}:{content_hash(dockerfile, base)}"
        with self._working():
            if not self.has(image):
                with tempfile.TemporaryDirectory() as folder, stage(f"Making the image {image}"):
                    mounts = pip_mounts(Path(folder))
                    arguments = {"BASE_IMAGE": base, "PIP_FIND_LINKS": pip_settings().get("find-links", "")}
                    command: list[str | Path] = [
                        "bud",
                        "--isolation",
                        "chroot",
                        "--network",
                        "host",
                        "--layers",
                        "--force-rm",
                    ]
                    command += ["--target", target, "-t", image, "-f", dockerfile]
                    command += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
                    command += [word for mount in mounts for word in ("-v", mount)]
                    self._buildah(*command, self._project, timeout_s=1800)
                self._forget_old(f"localhost/reef-{target}")
        return image

    def _forget_old(self, name: str) -> None:
        self._buildah("rm", "--all")  # of builds that were cut off, which hold on to images
        listed = self._buildah("images", "--format", "{{.Name}}:{{.Tag}}")  # the newest first
        for image in [line for line in listed.split() if line.startswith(f"{name}:")][KEPT:]:
            self._buildah("rmi", image)
        if len(self._buildah("images", "--all", "--quiet").split()) > KEPT_LAYERS:
            self._buildah("rmi", "--prune")

    @contextlib.contextmanager
    def archived(self, image: str) -> Iterator[Path]:
        """The image as a file that containerd imports; gone afterwards."""
        with self._working(), tempfile.TemporaryDirectory(dir=self._folder) as folder:
            archive = Path(folder, "image.tar")
            self._buildah("push", "--quiet", image, f"docker-archive:{archive}:{image}")
            yield archive


def file_system(folder: Path) -> str:
    """The type of the file system that a folder lies on."""
    return run(["stat", "--file-system", "--format", "%T", folder]).strip().replace("overlayfs", "overlay")


def content_hash(dockerfile: Path, base: str) -> str:
    """Hash of the Dockerfile, its base, and all files that it copies from the repository."""
    digest = hashlib.sha256(base.encode() + dockerfile.read_bytes())
    for path in copied_files(dockerfile):
        digest.update(f"{path.relative_to(dockerfile.parent)} {path.stat().st_mode & 0o111}".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def copied_files(dockerfile: Path) -> list[Path]:
    """All files below what COPY and ADD name, without what git ignores."""
    root = dockerfile.parent
    sources: list[str] = []
    for line in re.sub(r"\\\n", " ", dockerfile.read_text()).splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0].upper() in ("COPY", "ADD") and not any(word.startswith("--from=") for word in words):
            sources += [word for word in words[1:-1] if not word.startswith("--")]
    command = ["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard", "--", *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        files = {root / name for name in done.stdout.split("\0") if name}
    else:
        files = {path for source in sources for top in root.glob(source) for path in (top, *top.rglob("*"))}
    return sorted(path for path in files if path.is_file() and "__pycache__" not in path.parts)


def pip_settings() -> dict[str, str]:
    """This machine's pip settings, from its files and from the environment; the environment's count more."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    home = {**os.environ, "HOME": home_folder()}  # tests point $HOME elsewhere
    done = subprocess.run(command, env=home, capture_output=True, text=True, check=False)
    settings: dict[str, str] = {}
    for scope in ("global", "install", ":env:"):
        for key, value in re.findall(rf"^{scope}\.([\w-]+)='(.*)'$", done.stdout, re.MULTILINE):
            settings[key] = value.replace("\\n", "\n")
    if os.environ.get("SSL_CERT_FILE"):
        settings.setdefault("cert", os.environ["SSL_CERT_FILE"])
    return settings


def pip_mounts(folder: Path) -> list[str]:
    """What to mount while an image is built: a pip.conf of these settings, and every file and folder that it names."""
    settings = pip_settings()
    lines = [f"{key} = " + "\n    ".join(value.split()) for key, value in settings.items()]
    (folder / "pip.conf").write_text("\n".join(["[global]", *lines]) + "\n")
    named = {word.removeprefix("file://") for value in settings.values() for word in value.split()}
    # An index of files is a folder of links into its neighbours: mount what is above the page that is named.
    places = {str(Path(word).parent) if word.endswith("/simple") else word for word in named if word.startswith("/")}
    existing = sorted(place for place in places if Path(place).exists())
    return [f"{folder}/pip.conf:/etc/pip.conf:ro", *(f"{place}:{place}:ro" for place in existing)]
