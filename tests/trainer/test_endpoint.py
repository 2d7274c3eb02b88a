"""Few connections, small requests and little time: what anybody may reach stays up, and costs one thread."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reef import endpoint
from reef.endpoint import CONNECTIONS, REQUEST_BYTES, Answer, Endpoint


def answer(path: str) -> Answer:
    return Answer(b"x" * 100_000 if path == "/large" else path.encode(), headers={"Who": "me"})


@pytest.fixture
def served() -> Iterator[Endpoint]:
    made = Endpoint("127.0.0.1", 0, answer)
    yield made
    made.stop()


def get(port: int, path: str = "/a", host: str = "127.0.0.1", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def connected(port: int, sent: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 5)
    made.sendall(sent)
    return made


def is_open(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_two_hundred_connections_that_drip_bytes_hold_up_nobody(served: Endpoint) -> None:
    before = threading.active_count()
    drips = [connected(served.port, b"GET /a HTTP/1.1\r\n") for _ in range(200)]
    try:
        for _ in range(5):
            for drip in drips:
                with contextlib.suppress(OSError):
                    drip.send(b"X")
            begin = time.monotonic()
            assert get(served.port).read() == b"/a"
            assert time.monotonic() - begin < 2
            assert threading.active_count() == before
        assert sum(map(is_open, drips)) < CONNECTIONS
    finally:
        for drip in drips:
            drip.close()


def test_bytes_that_drip_do_not_lengthen_a_requests_time(served: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.5)
    drip, begin = connected(served.port, b"GET /a HTTP/1.1\r\n"), time.monotonic()
    with drip, contextlib.suppress(OSError):
        while is_open(drip):
            assert time.monotonic() - begin < 10
            drip.send(b"X")
            time.sleep(0.05)
    assert time.monotonic() - begin >= 0.4


def test_who_does_not_read_its_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "REQUEST_S", 0.3)
    served = Endpoint("127.0.0.1", 0, lambda _: Answer(b"x" * 50_000_000))
    with connected(served.port, b"GET /a HTTP/1.1\r\n\r\n"):
        deadline = time.monotonic() + 10
        time.sleep(0.1)
        while served._open:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    served.stop()


def test_large_and_strange_requests_are_refused(served: Endpoint) -> None:
    requests = {
        b"GET /" + b"x" * REQUEST_BYTES: b" 431 ",
        b"POST /a HTTP/1.1\r\n\r\n": b" 405 ",
        b"\x16\x03\x01\xff\r\n\r\n": b" 405 ",
    }
    for request, status in requests.items():
        with connected(served.port, request) as client:
            assert status in client.recv(100)
    for end in (b"", b"GET"):
        connected(served.port, end).close()
    assert get(served.port, "/b?c=1").read() == b"/b"


def test_answers_are_whole_and_compressed_for_those_who_ask(served: Endpoint) -> None:
    plain, small = get(served.port, "/large"), get(served.port, "/a", **{"Accept-Encoding": "gzip"})
    assert (plain.getheader("Who"), plain.getheader("Content-Encoding"), plain.read()) == ("me", None, b"x" * 100_000)
    assert (small.getheader("Content-Encoding"), small.read()) == (None, b"/a")
    packed = get(served.port, "/large", **{"Accept-Encoding": "deflate, gzip"})
    assert packed.getheader("Content-Encoding") == "gzip"
    assert gzip.decompress(packed.read()) == b"x" * 100_000


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="a kernel without IPv6")
@pytest.mark.parametrize(("address", "reached_at"), [("::1", ["::1"]), ("::", ["::1", "127.0.0.1"])])
def test_addresses_of_ipv6_work(address: str, reached_at: list[str]) -> None:
    served = Endpoint(address, 0, answer)
    for host in reached_at:
        assert get(served.port, host=host).read() == b"/a"
    served.stop()


def test_a_stopped_one_gives_its_port_back(served: Endpoint) -> None:
    waiting = connected(served.port, b"GET")
    served.stop()
    served.stop()
    assert not is_open(waiting)
    Endpoint("127.0.0.1", served.port, answer).stop()
