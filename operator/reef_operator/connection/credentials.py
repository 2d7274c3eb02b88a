"""Credentials for the API server: the pod's service account, or a developer's kubeconfig."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import kopf

Login = Callable[[], Awaitable[kopf.ConnectionInfo]]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# The kubelet replaces the token file long before the token expires.
REFRESH_S = 60.0


async def service_account_login() -> kopf.ConnectionInfo:
    """Return the credentials in this pod. The server is addressed by IP, so this works while the cluster's DNS is down.

    Raises:
        kopf.LoginError: the pod has no credentials.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        token = (SERVICE_ACCOUNT / "token").read_text().strip()
    except OSError:
        token = ""
    if not host or not token:
        raise kopf.LoginError("no service account here: run as a pod, or with --dev to use a kubeconfig")
    address = f"[{host}]" if ":" in host else host
    return kopf.ConnectionInfo(
        server=f"https://{address}:{port}", ca_path=str(SERVICE_ACCOUNT / "ca.crt"), scheme="Bearer", token=token
    )


async def kubeconfig_login() -> kopf.ConnectionInfo:
    """Return the credentials of $KUBECONFIG or ~/.kube/config, for every login method that a kubeconfig supports.

    Raises:
        kopf.LoginError: there is no usable kubeconfig.
    """
    # This import takes 20 MB, which a pod does not need.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_kube_config

    found = Configuration()
    try:
        await load_kube_config(client_configuration=found)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise kopf.LoginError(f"no usable kubeconfig: {error}; set KUBECONFIG") from error
    scheme, _, token = (found.api_key.get("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=found.host,
        ca_path=found.ssl_ca_cert,
        insecure=not found.verify_ssl,
        certificate_path=found.cert_file,
        private_key_path=found.key_file,
        scheme=scheme or None,
        token=token or None,
    )


class Credentials:
    """Credentials of requests, read again every minute.

    Args:
        login: reads the credentials.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._found: kopf.ConnectionInfo | None = None
        self._ssl: ssl.SSLContext | None = None
        self._made_from: tuple[object, ...] = ()
        self._read = 0.0

    async def current(self, *, renew: bool = False) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Return the server address without a trailing slash, headers, and TLS settings (None for plain HTTP).

        Args:
            renew: read the credentials again even if they are recent, because the server refused them.
        """
        if self._found is None or renew or time.monotonic() - self._read > REFRESH_S:
            found = await self._login()
            parts = tls_parts(found)
            if parts != self._made_from:
                self._ssl = found.as_ssl_context() if found.server.startswith("https") else None
            self._found, self._made_from, self._read = found, parts, time.monotonic()
        return self._found.server.rstrip("/"), self._found.as_http_headers(), self._ssl


def tls_parts(info: kopf.ConnectionInfo) -> tuple[object, ...]:
    """Return the inputs of a TLS context. Creating a context takes milliseconds and needs new connections.

    Files are compared by content, because a rotated file keeps its name.
    """
    return (
        info.server,
        info.insecure,
        *(content(path) for path in (info.ca_path, info.certificate_path, info.private_key_path)),
        info.ca_data,
        info.certificate_data,
        info.private_key_data,
    )


def content(path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None) -> bytes | None:
    """Return the content of a file; None if it cannot be read: the code that needs the file reports that."""
    try:
        return None if path is None else Path(os.fsdecode(path)).read_bytes()
    except OSError:
        return None
