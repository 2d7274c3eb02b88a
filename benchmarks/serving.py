"""Actions per second of `reef serve`, also by WebSocket, and of a policy server, beside a bare aiohttp echo.

    python -m benchmarks.serving CHECKPOINT [--clients 32] [--seconds 5] [--only NAME ...]

Each client has one connection and one observation in flight. Clients are one process, the server another. The policy
server has the checkpoint's network with other weights, and the clients play episodes that nobody learns from.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import aiohttp
import numpy as np

from reef.algorithms.registry import stored_config
from reef.external.listening.connections import allow_connections
from reef.external.wire import CONTENT_TYPE as MSGPACK
from reef.external.wire import REQUEST, StartEpisode, Step, Steps, encode
from reef.run.checkpoint import find_checkpoint, read_algorithm
from reef.serving.finished import FinishedPolicy

JSON = "application/json"
ECHO = """
import asyncio
from aiohttp import web
from reef.external.listening.connections import allow_connections

async def echo(request):
    return web.Response(body=await request.read(), content_type=request.content_type)

async def main():
    app = web.Application()
    app.router.add_post("/v1/actions", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print("http://127.0.0.1:%d" % runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

allow_connections({clients}, "--clients {clients}")
asyncio.run(main())
"""
POLICY_SERVER = """
from benchmarks.serving import policy_server
policy_server({checkpoint!r}, {clients})
"""
Send = Callable[[int], Awaitable[None]]  # the number of a request, from 0 on


class Measured(NamedTuple):
    per_second: float
    median_ms: float
    p99_ms: float


class Target(NamedTuple):
    """A server, and how a client of it asks."""

    command: list[str]
    client: Callable[[aiohttp.ClientSession, int], Awaitable[Send]]  # of this number


def targets(checkpoint: str, clients: int) -> dict[str, Target]:
    """What is measured, by name."""
    space = FinishedPolicy(checkpoint).observation_space
    body = json.dumps({"observation": np.zeros(space.shape or ()).tolist()}).encode()
    serve = ["-m", "reef", "serve", checkpoint, "--port", "0", "--max-connections", str(clients + 10)]
    program = POLICY_SERVER.format(checkpoint=checkpoint, clients=clients)

    async def asks(session: aiohttp.ClientSession, _: int) -> Send:
        return lambda _: post(session, "/v1/actions", body, {"Content-Type": JSON})

    async def talks(session: aiohttp.ClientSession, _: int) -> Send:
        socket = await session.ws_connect("/v1/actions")

        async def send(_: int) -> None:
            await socket.send_frame(body, aiohttp.WSMsgType.TEXT)
            answer = await socket.receive_str()
            assert "action" in answer, answer

        return send

    async def plays(session: aiohttp.ClientSession, number: int) -> Send:
        episode, obs = str(number), np.zeros(space.shape or (), space.dtype)
        head = {"Content-Type": MSGPACK}
        await post(session, "/v1/episodes", encode(StartEpisode(episode_id=episode, training_enabled=False)), head)
        step = encode(Steps(steps=[Step(episode_id=episode, obs=obs)]))
        return lambda count: post(session, "/v1/steps", step, head | {REQUEST: f"{number}/{count}"})

    return {
        "reef serve": Target(serve, asks),
        "WebSocket": Target(serve, talks),
        "policy server": Target(["-c", program], plays),
        "aiohttp echo": Target(["-c", ECHO.format(clients=clients)], asks),
    }


def policy_server(checkpoint: str, clients: int) -> None:
    """Answer applications with the network of a checkpoint; prints where."""
    policy = FinishedPolicy(checkpoint)
    _, metadata = read_algorithm(find_checkpoint(checkpoint))
    config: Any = stored_config(metadata)
    given = {"port": 0, "max_connections": clients + 10, "max_episodes": clients}
    config.update_from_dict(
        {
            "env": None,
            "observation_space": policy.observation_space,
            "action_space": policy.action_space,
            "input_": "policy_server",
            "input_config": given,
            "num_rollout_workers": 0,
            "num_envs_per_worker": 1,
        }
    )
    with config.build() as algorithm:
        source = algorithm.workers.local_worker().source
        print(f"http://127.0.0.1:{source.port}", flush=True)
        while True:
            time.sleep(1.0)
            source.check()


@contextmanager
def server(command: list[str]) -> Iterator[str]:
    """The address of a server, which ends with the block."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


async def post(session: aiohttp.ClientSession, path: str, body: bytes, headers: dict[str, str]) -> None:
    """Send a request, and read the answer."""
    async with session.post(path, data=body, headers=headers) as found:
        content = await found.read()
        assert found.status == 200, content


async def asked(address: str, target: Target, clients: int, seconds: float) -> Measured:
    """How fast the requests of all clients are answered."""
    async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(limit=clients)) as session:
        senders = [await target.client(session, number) for number in range(clients)]
        counts = [0] * clients

        async def client(number: int, until: float, results: list[float]) -> None:
            while (begun := time.perf_counter()) < until:
                await senders[number](counts[number])
                counts[number] += 1
                results.append(time.perf_counter() - begun)

        took: list[float] = []
        for length, results in ((seconds / 5, []), (seconds, took)):  # the first is not counted
            begun = time.perf_counter()
            await asyncio.gather(*(client(number, begun + length, results) for number in range(clients)))
            spent = time.perf_counter() - begun
    took.sort()
    return Measured(len(took) / spent, took[len(took) // 2] * 1e3, took[int(len(took) * 0.99)] * 1e3)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these servers, such as 'reef serve'")
    args = parser.parse_args(arguments)
    allow_connections(args.clients, f"--clients {args.clients}")
    known = targets(args.checkpoint, args.clients)
    if unknown := set(args.only or ()) - known.keys():
        parser.error(f"--only {' '.join(sorted(unknown))}: expected some of {', '.join(map(repr, known))}")
    found: dict[str, Measured] = {}
    for name, target in known.items():
        if args.only and name not in args.only:
            continue
        with server(target.command) as address:
            measured = found[name] = asyncio.run(asked(address, target, args.clients, args.seconds))
        print(
            f"{name:<14} {measured.per_second:6.0f} per second, median {measured.median_ms:.1f} ms, "
            f"p99 {measured.p99_ms:.1f} ms", flush=True
        )  # fmt: skip
    if echo := found.pop("aiohttp echo", None):
        for name, measured in found.items():
            print(f"{name:<14} {measured.per_second / echo.per_second:.2f} of the echo")


if __name__ == "__main__":
    main()
