"""A resolver for names of services, in the place of CoreDNS: `python -m kube.resolver KUBECONFIG ADDRESS`.

It answers A queries for `<service>.<namespace>.svc.cluster.local`, for headless services with the addresses of their
ready pods, and `<hostname>.<service>...` for one of these; the answers are what the API server says at that moment.
Every other name does not exist. While the API server is away, the last answers go on being given.
"""

from __future__ import annotations

import ipaddress
import socketserver
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.api import Api, ApiError

DOMAIN = "svc.cluster.local"
KEEP_S = 1.0  # an answer is asked for again after this time
TYPE_A, CLASS_IN = 1, 1
NO_ERROR, SERVER_FAILED, NO_SUCH_NAME = 0, 2, 3


@dataclass
class Names:
    """Addresses of names, from the API server.

    Args:
        api: where services and endpoints are read.
    """

    api: Api
    _known: dict[str, tuple[float, list[str] | None]] = field(default_factory=dict)

    def addresses(self, name: str) -> list[str] | None:
        """Addresses of a name; None if there is no such name.

        Raises:
            OSError: the API server cannot be reached, and the name was not asked for before.
        """
        asked, found = self._known.get(name, (-KEEP_S, None))
        if time.monotonic() - asked < KEEP_S:
            return found
        try:
            found = self._ask(name)
        except OSError:
            if name not in self._known:
                raise
            return found
        self._known[name] = (time.monotonic(), found)
        return found

    def _ask(self, name: str) -> list[str] | None:
        labels = name.removesuffix(f".{DOMAIN}").split(".")
        if not name.endswith(f".{DOMAIN}") or len(labels) not in (2, 3):
            return None
        *hostname, service, namespace = labels
        try:
            spec = self.api.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]
            if spec.get("clusterIP", "None") != "None":
                return None if hostname else [spec["clusterIP"]]
            endpoints = self.api.request("GET", f"/api/v1/namespaces/{namespace}/endpoints/{service}")
        except ApiError as refused:
            if refused.status == 404:
                return None
            raise OSError(str(refused)) from refused
        return endpoint_addresses(endpoints, hostname[0] if hostname else "") or None


def endpoint_addresses(endpoints: dict[str, Any], hostname: str) -> list[str]:
    """Addresses of a headless service, or of the one pod of it that has this hostname."""
    ready = [address for subset in endpoints.get("subsets") or [] for address in subset.get("addresses") or []]
    return sorted({each["ip"] for each in ready if not hostname or each.get("hostname") == hostname})


def parse_question(query: bytes) -> tuple[str, int, bytes]:
    """Name in lower case, type, and the question's own bytes.

    Raises:
        ValueError: it is no query with exactly one question.
    """
    if len(query) < 12 or query[2] & 0x80 or struct.unpack("!H", query[4:6]) != (1,):
        raise ValueError("no query")
    labels, position = [], 12
    while query[position]:
        length = query[position]
        if length > 63 or position + length + 1 >= len(query):
            raise ValueError("no name")
        labels.append(query[position + 1 : position + 1 + length].decode("ascii"))
        position += length + 1
    (kind,) = struct.unpack("!H", query[position + 1 : position + 3])
    return ".".join(labels).lower(), kind, query[12 : position + 5]


def answer(query: bytes, names: Names) -> bytes:
    """The answer to a query, in the bytes of RFC 1035.

    Raises:
        ValueError: it is no query.
    """
    name, kind, question = parse_question(query)
    try:
        found = names.addresses(name)
        code = NO_SUCH_NAME if found is None else NO_ERROR
    except OSError:
        found, code = None, SERVER_FAILED
    given = (found or []) if kind == TYPE_A else []
    recursion = query[2] & 0x01
    head = query[:2] + bytes([0x84 | recursion, 0x80 | code]) + struct.pack("!HHHH", 1, len(given), 0, 0)
    pointer = struct.pack("!HHHIH", 0xC00C, TYPE_A, CLASS_IN, int(KEEP_S), 4)
    return head + question + b"".join(pointer + ipaddress.IPv4Address(address).packed for address in given)


class Server(socketserver.ThreadingUDPServer):
    """One thread per query: a slow API server must not hold up the others."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], names: Names) -> None:
        super().__init__(address, Handler)
        self.names = names


class Handler(socketserver.BaseRequestHandler):
    """Answers one datagram."""

    def handle(self) -> None:
        query, sock = self.request
        assert isinstance(self.server, Server)
        try:
            sock.sendto(answer(query, self.server.names), self.client_address)
        except (ValueError, IndexError, struct.error) as problem:  # not DNS: nobody to answer
            print(f"dropped {query[:64]!r}: {problem}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    Server((sys.argv[2], 53), Names(Api(Path(sys.argv[1])))).serve_forever()
