"""Actions per second of `reef serve`, beside a bare aiohttp server that answers with what it got.

    python -m benchmarks.serving CHECKPOINT [--clients 32] [--seconds 5]

Each client has one connection and one observation in flight. Clients are one process, the server another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import aiohttp

ECHO = """
import asyncio
from aiohttp import web

async def echo(request):
    return web.Response(body=await request.read(), content_type="application/json")

async def main():
    app = web.Application()
    app.router.add_post("/v1/actions", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Measured(NamedTuple):
    per_second: float
    median_ms: float
    p99_ms: float


@contextmanager
def server(command: list[str]) -> Iterator[str]:
    """The address of a server, which ends with the block."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def asked(address: str, clients: int, seconds: float) -> Measured:
    """How fast requests with one sampled observation are answered."""
    async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(limit=clients)) as session:
        policy = await session.get("/v1/policy")
        shape = (await policy.json())["observation_space"]["shape"] if policy.status == 200 else [4]
        body = json.dumps({"observation": _zeros(shape)}).encode()
        took: list[float] = []

        async def client(until: float, results: list[float]) -> None:
            while (begun := time.perf_counter()) < until:
                async with session.post(
                    "/v1/actions", data=body, headers={"Content-Type": "application/json"}
                ) as found:
                    await found.read()
                    assert found.status == 200
                results.append(time.perf_counter() - begun)

        for length, results in ((seconds / 5, []), (seconds, took)):  # the first is not counted
            begun = time.perf_counter()
            await asyncio.gather(*(client(begun + length, results) for _ in range(clients)))
            spent = time.perf_counter() - begun
    took.sort()
    return Measured(len(took) / spent, took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3)


def _zeros(shape: list[int]) -> object:
    return [_zeros(shape[1:])] * shape[0] if shape else 0.0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args(arguments)
    servers = {"reef serve": ["-m", "reef", "serve", args.checkpoint, "--port", "0"], "aiohttp echo": ["-c", ECHO]}
    for name, command in servers.items():
        with server(command) as address:
            found = asyncio.run(asked(address, args.clients, args.seconds))
        print(
            f"{name:<14} {found.per_second:6.0f} per second, median {found.median_ms:.1f} ms, p99 {found.p99_ms:.1f} ms"
        )


if __name__ == "__main__":
    main()
