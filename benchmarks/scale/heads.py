"""Stands in for the progress endpoints of all heads: run on the node, where the hollow pods' addresses are made local.

Every head trains: it ends an iteration a second, at the same moments as the others, so that a status tells how old it
is. With the argument `still` it stays at its first iteration, so that nothing is to be written.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

ITERATION_S = 1.0
PORT = 8080
LIMIT_S = 5.0


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, whatever it asks for."""
    try:
        async with asyncio.timeout(LIMIT_S):
            await reader.readuntil(b"\r\n\r\n")
            body = json.dumps(report(time.time())).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
    except (OSError, EOFError, TimeoutError):
        pass
    finally:
        writer.close()


def report(now: float) -> dict[str, object]:
    """What a head says of itself."""
    done = 1 if "still" in sys.argv else int(now / ITERATION_S)
    training = {"iteration": done, "timesteps": done * 4000, "episodes": done * 10, "rewardMean": done % 500 / 1.0}
    return {"state": "training", "message": "", "workersRecreated": 0, "time": now, "training": training}


async def serve() -> None:
    """Answer until killed."""
    server = await asyncio.start_server(answer, "0.0.0.0", PORT, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
