"""Certificates and kubeconfigs of a cluster, made with openssl."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from kube.machine import Network
from kube.progress import run
from kube.registrar import HOST as CRD_SERVER
from kube.registrar import PORT as CRD_PORT

NODE = "reef-node"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# file name -> subject, key usages
CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "proxy": "/CN=system:kube-proxy",
    "crd-server": "/O=system:masters/CN=crd-server",
    "front-proxy": "/CN=front-proxy",
    "registrar": "/O=system:masters/CN=registrar",
}


def make_certificates(folder: Path, network: Network) -> None:
    """An authority, the API server's and every client's certificate, and the key that signs tokens of accounts."""
    folder.mkdir(parents=True, exist_ok=True)
    days = ["-days", "3650"]
    ca = ["-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt", "-subj", "/CN=reef-test-cluster"]
    run(["openssl", "req", "-x509", *CURVE, *ca, *days])
    run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "tokens.key"])
    run(["openssl", "ec", "-in", folder / "tokens.key", "-pubout", "-out", folder / "tokens.pub"])
    addresses = f"IP:127.0.0.1,IP:{network.node},IP:{network.bridge},IP:{network.first_service}"
    names = "".join(f",DNS:kubernetes{rest}" for rest in ("", ".default", ".default.svc", ".default.svc.cluster.local"))
    sign(folder, "apiserver", "/CN=kube-apiserver", f"subjectAltName={addresses},DNS:localhost{names}")
    serve = {"kubelet": f"{addresses},DNS:{NODE}", "crd-server": f"DNS:{CRD_SERVER},DNS:localhost"}
    servers = {"registrar": f"https://localhost:{CRD_PORT}"}
    for name, subject in CLIENTS.items():
        served = f"\nsubjectAltName={serve[name]}" if name in serve else ""
        sign(folder, name, subject, f"extendedKeyUsage=clientAuth,serverAuth{served}")
        write_kubeconfig(folder, name, servers.get(name, f"https://{network.node}:6443"))


def sign(folder: Path, name: str, subject: str, extensions: str) -> None:
    """A key and a certificate of the authority, as `name`.key and `name`.crt."""
    key, request, made = folder / f"{name}.key", folder / f"{name}.csr", folder / f"{name}.crt"
    run(["openssl", "req", *CURVE, "-keyout", key, "-out", request, "-subj", subject])
    authority = ["-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key", "-CAcreateserial"]
    arguments = ["-req", "-in", str(request), *authority, "-days", "3650", "-out", str(made), "-extfile", "/dev/stdin"]
    run(["openssl", "x509", *arguments], stdin=f"{extensions}\n")
    request.unlink()


def write_kubeconfig(folder: Path, name: str, server: str) -> None:
    """`name`.kubeconfig: complete in itself, so that it can be copied anywhere."""

    def inline(file: str) -> str:
        return base64.b64encode((folder / file).read_bytes()).decode()

    user = {"client-certificate-data": inline(f"{name}.crt"), "client-key-data": inline(f"{name}.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "reef", "cluster": {"server": server, "certificate-authority-data": inline("ca.crt")}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "reef", "context": {"cluster": "reef", "user": name}}],
        "current-context": "reef",
    }
    path = folder / f"{name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
