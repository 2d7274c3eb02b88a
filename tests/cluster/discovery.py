"""Kubernetes service discovery for a Prometheus that was built without it, as Debian's is.

It gives pods the labels that Prometheus' own `kubernetes_sd_configs` with `role: pod` gives them, over Prometheus' HTTP
service discovery. Relabelling, scraping and everything after it are Prometheus' own.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kube.api import Api
from kube.progress import ClusterError


def targets_of(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One target for each port of a pod that has an address."""
    metadata, address = pod["metadata"], pod["status"].get("podIP")
    about = {
        "namespace": metadata["namespace"],
        "pod_name": metadata["name"],
        "pod_ip": address,
        "pod_phase": pod["status"].get("phase", ""),
    }
    for kind in ("label", "annotation"):
        for key, value in (metadata.get(f"{kind}s") or {}).items():
            about[f"pod_{kind}_{re.sub('[^a-zA-Z0-9_]', '_', key)}"] = value
    labels = {f"__meta_kubernetes_{name}": value for name, value in about.items()}
    for container in pod["spec"]["containers"] if address else ():
        for port in container.get("ports") or []:
            yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


@contextlib.contextmanager
def pods_over_http(api: Api) -> Iterator[str]:
    """Answer with all pods of a cluster; yields the URL, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                found = api.request("GET", "/api/v1/pods")["items"]
            except (ClusterError, OSError) as away:  # Prometheus stays with the targets that it has
                status, body = 503, str(away).encode()
            else:
                status, body = 200, json.dumps([target for pod in found for target in targets_of(pod)]).encode()
            with contextlib.suppress(BrokenPipeError):  # it did not wait for the answer
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: it is asked every second."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
