"""The API server over plain HTTP, for what kubectl is too slow for; certificates or a token as the kubeconfig says."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kube.progress import ClusterError

PATCHES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class ApiError(ClusterError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status


class Api:
    """Requests to one API server; every thread keeps a connection of its own.

    Args:
        kubeconfig: its current context names the server and the user.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = entry(config, "contexts", config["current-context"])["context"]
        cluster = entry(config, "clusters", context["cluster"])["cluster"]
        user = entry(config, "users", context["user"])["user"]
        self._server = urllib.parse.urlsplit(cluster["server"])
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        self._tls = tls_context(cluster, user)
        self._local = threading.local()

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "", timeout_s: float = 10) -> Any:
        """Send one request and return the decoded answer.

        Args:
            method: of HTTP.
            path: beginning with /api or /apis, with its query.
            body: what is sent as JSON.
            kind: of a PATCH: "merge", "strategic" or "apply" (on the server).
            timeout_s: limit in seconds.

        Raises:
            ApiError: the server refused it.
            OSError: the server cannot be reached.
        """
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = PATCHES.get(kind, "application/json")
        text = None if body is None else json.dumps(body)
        for attempt in (1, 2):  # a kept connection may have been closed since
            connection = self._connection(timeout_s)
            try:
                connection.request(method, self._server.path.rstrip("/") + path, text, headers)
                answer = connection.getresponse()
                content = answer.read()
                break
            except (OSError, http.client.HTTPException) as problem:
                self._local.connection = None
                connection.close()
                if attempt == 2:
                    raise OSError(f"{method} {path}: {problem!r}") from problem
        if answer.status >= 400:
            raise ApiError(answer.status, content.decode(errors="replace")[:500])
        return json.loads(content) if content else None

    def stream(self, path: str, *, timeout_s: float = 60) -> Iterator[Any]:
        """Events of a watch, until the server ends it; on a connection of its own.

        Raises:
            ApiError: the server refused it.
            OSError: the connection broke, or nothing came within `timeout_s`.
        """
        connection = self._connect(timeout_s)
        try:
            connection.request("GET", self._server.path.rstrip("/") + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise ApiError(answer.status, answer.read().decode(errors="replace")[:500])
            for line in answer:
                yield json.loads(line)
        except http.client.HTTPException as problem:
            raise OSError(f"GET {path}: {problem!r}") from problem
        finally:
            connection.close()

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._server.hostname or "", self._server.port
        if self._server.scheme == "https":
            return http.client.HTTPSConnection(host, port or 443, context=self._tls, timeout=timeout_s)
        return http.client.HTTPConnection(host, port or 80, timeout=timeout_s)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is None:
            kept = self._connect(timeout_s)
            self._local.connection = kept
        kept.timeout = timeout_s
        if kept.sock is not None:
            kept.sock.settimeout(timeout_s)
        return kept


def entry(config: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    """The named entry of a section of a kubeconfig."""
    found: dict[str, Any] = next(item for item in config[section] if item["name"] == name)
    return found


def tls_context(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    """The authority to trust and the certificate to show; both stand in the kubeconfig or in files that it names."""
    authority = read(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = read(user, "client-certificate"), read(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as both:  # ssl takes files only
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def read(section: dict[str, Any], name: str) -> bytes:
    """What stands under `name`-data, or in the file under `name`."""
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    return Path(section[name]).read_bytes() if name in section else b""
