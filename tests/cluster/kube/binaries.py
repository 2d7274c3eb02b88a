"""Programs of the cluster: Debian packages, and kube-* built once from Debian's source package `kubernetes`."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kube.debian import apt_of, install, missing
from kube.progress import ClusterError, NoClusterError, cache_folder, locked, run, say, stage

VERSION = "1.20.2"
SUITE = "bookworm"  # the Debian release that carries this version's source
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")

# program that shows that the package is there -> package
RUNTIME_PACKAGES = {
    "/usr/bin/etcd": "etcd-server",
    "/usr/bin/containerd": "containerd",
    "/usr/sbin/runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "/usr/sbin/iptables": "iptables",
    "/usr/sbin/conntrack": "conntrack",
    "/usr/bin/ip": "iproute2",
    "/usr/bin/mount": "mount",
    "/usr/bin/nsenter": "util-linux",
    "/usr/bin/openssl": "openssl",
    "/usr/bin/buildah": "buildah",
    "/usr/sbin/debootstrap": "debootstrap",
    "/usr/bin/gcc": "gcc",
    f"/usr/lib/{os.uname().machine}-linux-gnu/libc.a": "libc6-dev",
}
BUILD_PACKAGES = {
    "/usr/bin/go": "golang-go",
    "/usr/share/gocode/src/github.com/modern-go/reflect2/reflect2.go": "golang-github-modern-go-reflect2-dev",
}
# Without the clouds' and Docker's code, which is a third of the work. No debugging information.
GO_BUILD = ("go", "build", "-p", "2", "-trimpath", "-tags", "providerless,dockerless", "-gcflags=all=-dwarf=false")


@dataclass(frozen=True)
class Binaries:
    """Where the programs of the cluster are."""

    folder: Path  # with kube-controller-manager, kube-scheduler, kubelet and kube-proxy
    apiserver: Path
    kubectl: Path
    etcd: Path


def check_machine() -> None:
    """Raise NoClusterError if this machine cannot run a cluster of its own."""
    if os.uname().sysname != "Linux":
        raise NoClusterError("a cluster of its own needs Linux")
    if os.geteuid() != 0:
        raise NoClusterError("a cluster of its own needs root")
    if missing(RUNTIME_PACKAGES) and not shutil.which("apt-get"):
        raise NoClusterError(f"apt-get is not there to install {' '.join(missing(RUNTIME_PACKAGES))}")
    try:
        run(["unshare", "--net", "--mount", "--pid", "--fork", "true"])
    except (ClusterError, OSError) as problem:
        raise NoClusterError(
            f"this machine grants no namespaces (a container without privileges?): {problem}"
        ) from problem


def find_binaries() -> Binaries:
    """Paths of all programs; packages are installed and kube-* built first where they are missing.

    $KUBEBUILDER_ASSETS names a folder whose kube-apiserver, kubectl and etcd are taken instead, each if it is there.
    """
    check_machine()
    install(RUNTIME_PACKAGES)
    folder = cache_folder() / "kubernetes" / VERSION
    with locked(folder.with_suffix(".lock")):
        if not all((folder / name).exists() for name in BUILT):
            build(folder)
    given = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")

    def choose(name: str, otherwise: Path) -> Path:
        return given / name if (given / name).exists() else otherwise

    return Binaries(
        folder=folder,
        apiserver=choose("kube-apiserver", folder / "kube-apiserver"),
        kubectl=choose("kubectl", folder / "kubectl"),
        etcd=choose("etcd", Path("/usr/bin/etcd")),
    )


def build(folder: Path) -> None:
    """Build everything of BUILT into the folder, which appears only when it is complete."""
    install(BUILD_PACKAGES)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reef-kubernetes-") as scratch:
        work = Path(scratch)
        tree = work / "go" / "src" / "k8s.io" / "kubernetes"
        go = {
            "GOPATH": str(work / "go"),
            "GOCACHE": str(work / "go-cache"),
            "GOTMPDIR": str(work),
            "GOFLAGS": "",
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
        }
        with stage(f"Downloading the source of Kubernetes {VERSION}"):
            unpack_source(work, tree)
        with stage("Generating the API's OpenAPI definitions"):
            generate_openapi(work, tree, go)
        with stage(f"Building {' '.join(BUILT)} (four minutes on two cores)"):
            out = folder.with_name(f".{VERSION}-{os.getpid()}")
            out.mkdir()
            try:
                packages = [f"./cmd/{name}" for name in BUILT]
                run(
                    [*GO_BUILD, "-ldflags", version_flags(), "-o", f"{out}/", *packages],
                    timeout_s=2400,
                    cwd=tree,
                    env=go,
                )
                shutil.rmtree(folder, ignore_errors=True)
                out.rename(folder)
            finally:
                shutil.rmtree(out, ignore_errors=True)
    say(f"The programs are in {folder}")


def unpack_source(work: Path, tree: Path) -> None:
    """Fetch Debian's source package and unpack it, with what it needs to run."""
    apt = apt_of(SUITE, work, kind="deb-src")
    run([*apt, "source", "--download-only", "kubernetes"], timeout_s=600, cwd=work)
    archives = list(work.glob(f"kubernetes_*{VERSION}.orig.tar.*"))  # Debian calls it 1.20.5+really1.20.2
    if not archives:
        raise ClusterError(f"Debian's {SUITE} has kubernetes, but not {VERSION}")
    (archive,) = archives
    tree.mkdir(parents=True)
    run(["tar", "xf", archive, "-C", tree, "--strip-components=1"], timeout_s=300)
    # The vendored reflect2 1.0.1 crashes under Go >= 1.18: kube-apiserver dies at the first custom resource.
    vendored = tree / "vendor/github.com/modern-go/reflect2"
    shutil.rmtree(vendored)
    shutil.copytree(
        "/usr/share/gocode/src/github.com/modern-go/reflect2", vendored, ignore=shutil.ignore_patterns("*_test.go")
    )


def generate_openapi(work: Path, tree: Path, go: dict[str, str]) -> None:
    """Generate pkg/generated/openapi, which kube-apiserver is compiled with and which the source package lacks."""
    generator = work / "openapi-gen"
    run(
        ["go", "build", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"],
        timeout_s=600,
        cwd=tree,
        env=go,
    )
    tagged = run(["grep", "-rl", "+k8s:openapi-gen=", "--include=*.go", "staging/src/k8s.io", "pkg/apis"], cwd=tree)
    unwanted = re.compile(r"zz_generated|_test\.go|generators|kube-openapi|code-generator|sample-")
    folders = sorted({str(Path(line).parent) for line in tagged.split() if not unwanted.search(line)})
    inputs = ",".join(
        re.sub(r"^staging/src/", "k8s.io/kubernetes/vendor/", re.sub(r"^pkg/", "k8s.io/kubernetes/pkg/", name))
        for name in folders
    )
    target = "k8s.io/kubernetes/pkg/generated/openapi"
    header = "vendor/k8s.io/code-generator/hack/boilerplate.go.txt"
    command = [str(generator), "--logtostderr", "-i", inputs, "-p", target, "-O", "zz_generated.openapi", "-h", header]
    run([*command, "-r", str(work / "violations")], timeout_s=600, cwd=tree, env=go)
    generated = tree / "pkg/generated/openapi/zz_generated.openapi.go"
    generated.write_text(generated.read_text().replace("k8s.io/kubernetes/vendor/", ""))


def version_flags() -> str:
    """Linker flags that tell the programs their version; without debugging information."""
    major, minor, _ = VERSION.split(".")
    values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    modules = ("component-base/version", "client-go/pkg/version")
    named = (f"-X k8s.io/kubernetes/vendor/k8s.io/{m}.{k}={v}" for m in modules for k, v in values.items())
    return " ".join(["-s", "-w", *named])
