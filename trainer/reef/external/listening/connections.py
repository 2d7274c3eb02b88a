"""Sockets that listen, and connections of which there are not too many."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket

from aiohttp import web

from reef.errors import ConfigError

WAITING = 1024  # connections that the kernel keeps until they are accepted; it may keep fewer
OTHER_FILES = 500  # that a process with a server has open beside its connections


def listening(address: str, port: int) -> socket.socket:
    """A socket that listens at the first address of this name, at any free port for 0; OSError where it cannot."""
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, place = found[0]
    return socket.create_server(place[:2], family=family, backlog=WAITING)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def allow_connections(count: int, setting: str) -> None:
    """Let this process have so many connections open: each is a file, of which the soft limit may allow too few.

    Raises ConfigError, which begins with `setting`, where the hard limit does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES
    if resource.RLIM_INFINITY != hard < needed:
        raise ConfigError(
            f"{setting}: each connection is a file, and this process may open {hard}. Give at most "
            f"{max(hard - OTHER_FILES, 1)}, or raise the hard limit of open files (ulimit -Hn)."
        )
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Arriving(asyncio.Protocol):
    """A connection of which it is decided whether there is room for it."""

    def __init__(self, server: web.Server, connections: int) -> None:
        self._server, self._connections = server, connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it to aiohttp, which counts it from then on, or say that there are too many, and close it."""
        assert isinstance(transport, asyncio.WriteTransport)
        if len(self._server.connections) < self._connections:
            handler = self._server()
            transport.set_protocol(handler)
            handler.connection_made(transport)
            return
        text = b"too many connections"
        head = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: text/plain\r\n"
        transport.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        transport.close()


async def serve(runner: web.AppRunner, sock: socket.socket, connections: int) -> asyncio.Server:
    """Answer at this socket; when there are as many `connections`, one more is answered 503 and closed."""
    server = runner.server
    assert server is not None
    return await asyncio.get_running_loop().create_server(
        lambda: _Arriving(server, connections), sock=sock, backlog=WAITING
    )
