"""Who we are to the API server: the pod's service account, or a developer's kubeconfig."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import kopf

Login = Callable[[], Awaitable[kopf.ConnectionInfo]]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REFRESH_S = 60.0  # the kubelet rotates the token's file long before the token ends


async def service_account_login() -> kopf.ConnectionInfo:
    """Credentials that the kubelet put into this pod; by address, so that the cluster's DNS may be down.

    Raises:
        kopf.LoginError: there are none.
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
    """Credentials of $KUBECONFIG or ~/.kube/config, whatever way of logging in it names.

    Raises:
        kopf.LoginError: there is none that can be used.
    """
    from kubernetes.aio.client import Configuration  # 20 MB that a pod need not load
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
    """What requests carry, read again every minute.

    Args:
        login: reads it.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._found: kopf.ConnectionInfo | None = None
        self._ssl: ssl.SSLContext | None = None
        self._made_from: tuple[object, ...] = ()
        self._read = 0.0

    async def current(self, *, renew: bool = False) -> tuple[str, dict[str, str], ssl.SSLContext | None]:
        """Server address without a slash at its end, headers, TLS settings (None for plain HTTP).

        Args:
            renew: read it again even if the last reading is young, because the server refused it.
        """
        if self._found is None or renew or time.monotonic() - self._read > REFRESH_S:
            found = await self._login()
            parts = tls_parts(found)
            if parts != self._made_from:
                self._ssl = found.as_ssl_context() if found.server.startswith("https") else None
            self._found, self._made_from, self._read = found, parts, time.monotonic()
        return self._found.server.rstrip("/"), self._found.as_http_headers(), self._ssl


def tls_parts(info: kopf.ConnectionInfo) -> tuple[object, ...]:
    """What a TLS context is made from: making one takes milliseconds and new connections.

    Files count by what is in them, as a rotated one keeps its name.
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
    """What is in a file; None where it cannot be read, which is told by whoever needs it."""
    try:
        return None if path is None else Path(os.fsdecode(path)).read_bytes()
    except OSError:
        return None
