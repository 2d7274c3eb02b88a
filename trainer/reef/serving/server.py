"""The server of a finished policy: HTTP in one thread, the policy in another."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from reef.config.spaces import space_to_dict
from reef.external.listening.bodies import ALL_BYTES, BodyMemory, body_of
from reef.external.listening.connections import serve
from reef.external.listening.refusals import BODY_S, IDLE_S, refused
from reef.external.listening.token import TokenCheck
from reef.external.wire import VERSION
from reef.serving.batches import Batches
from reef.serving.finished import FinishedPolicy
from reef.serving.messages import CONTENT_TYPES, JSON, Refused, answer, decoded, encoded, read
from reef.serving.metrics import ServingMetrics
from reef.serving.openapi import openapi
from reef.serving.play import PAGE, Play
from reef.serving.sockets import ActionSockets

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
END_S = 10.0  # seconds in which requests may be answered after SIGTERM
# for probes, Prometheus, tools and browsers: no token is asked for
OPEN = ("/healthz", "/metrics", "/openapi.json", PAGE)


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """How much clients may ask for."""

    connections: int
    request_bytes: int
    queued: int  # observations that wait or are acted on

    @property
    def message_bytes(self) -> int:
        """Of one message of a WebSocket, such that those of all connections take no more than all bodies may."""
        return min(self.request_bytes, max(ALL_BYTES // self.connections, 1))


class FinishedPolicyServer:
    """Answers requests for actions."""

    def __init__(self, policy: FinishedPolicy, limits: ServingLimits, token: str | None, *, play: bool = False) -> None:
        """`token` is what clients must send, None: nothing; `play`: also a page that shows the policy's environment.

        Raises ConfigError or EnvironmentError where that environment cannot be shown.
        """
        self._policy, self._limits, self._token = policy, limits, TokenCheck(token)
        self._batches = Batches(policy.act, limits.queued, lambda size: self._metrics.batch.observe(size))
        self._metrics = ServingMetrics(lambda: self._batches.observations)
        self._bodies, has_token = BodyMemory(limits.request_bytes), token is not None
        self._sockets = ActionSockets(self._answered_message, limits.message_bytes)
        self._openapi = msgspec.json.encode(openapi(policy, has_token=has_token, has_page=play))
        self._described = encoded(self._description(), JSON)
        self.app = web.Application(client_max_size=limits.request_bytes, middlewares=[self._answered])
        self.app.router.add_post(f"{VERSION}/actions", self._actions)
        self.app.router.add_get(f"{VERSION}/actions", self._sockets.serve, allow_head=False)
        self.app.router.add_get(f"{VERSION}/policy", self._described_policy, allow_head=False)
        self.app.router.add_get("/healthz", self._healthz, allow_head=False)
        self.app.router.add_get("/metrics", self._metrics_page, allow_head=False)
        self.app.router.add_get("/openapi.json", self._openapi_page, allow_head=False)
        self._play = Play(policy, self._batches.acted, has_token=has_token) if play else None
        if self._play is not None:
            self.app.router.add_get(PAGE, self._play.page, allow_head=False)
            self.app.router.add_get(f"{VERSION}/play", self._play.watch, allow_head=False)
        self.app.on_shutdown.append(self._close_sockets)

    async def run(self, sock: socket.socket, ready: Callable[[], None]) -> None:
        """Answer at this socket until SIGTERM or Ctrl-C, and then what was asked before; `ready` is called first."""
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=END_S, keepalive_timeout=IDLE_S)
        await runner.setup()
        server = await serve(runner, sock, self._limits.connections)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        try:
            ready()
            await stopping.wait()
        finally:
            server.close()
            await runner.cleanup()
            self._batches.close()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _close_sockets(self, _: web.Application) -> None:
        self._sockets.close()
        if self._play is not None:
            self._play.close()

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler; what it raises becomes a status and a text, and is counted."""
        refusal = None if request.path in OPEN else self._token.refusal(request)
        response = await self._tried(request, handler) if refusal is None else refusal
        if response.status >= 400:
            self._metrics.error(response.status)
        return response

    async def _tried(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            async with self._bodies.room_for(request):
                return await handler(request)
        except web.HTTPException as error:  # of aiohttp: no such path, too large a body
            headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            return web.Response(status=error.status, text=error.text, headers=headers)
        except Exception as error:
            return _refusal(error)

    async def _actions(self, request: web.Request) -> web.Response:
        with self._metrics.request():
            kind = request.content_type
            if kind not in CONTENT_TYPES:
                expected = " or ".join(CONTENT_TYPES)
                return web.Response(status=415, text=f"Content-Type: {kind}: expected {expected}")
            body = await self._answer(await body_of(request, BODY_S), kind)
            return web.Response(body=body, content_type=kind)

    async def _answered_message(self, body: bytes, kind: str) -> bytes:
        """The answer to a message of a WebSocket; what is wrong is answered with a message too."""
        with self._metrics.request():
            try:
                return await self._answer(body, kind)
            except Exception as error:
                refusal = _refusal(error)
                self._metrics.error(refusal.status)
                return encoded(Refused(status=refusal.status, error=refusal.text or ""), kind)

    async def _answer(self, body: bytes, kind: str) -> bytes:
        """The answer to a message of this content type, however it came."""
        message = decoded(body, kind)
        acted = await self._batches.acted(read(message, self._policy))
        return encoded(answer(message, acted, has_memory=bool(self._policy.state_names)), kind)

    def _description(self) -> dict[str, Any]:
        policy = self._policy
        state = [
            {"name": name, "shape": list(part.shape[1:]), "dtype": part.dtype.name}
            for name, part in policy.policy.initial_state(1).items()
        ]
        return {
            "policy": policy.policy_id,
            "algorithm": policy.policy.config.label,
            "observation_space": space_to_dict(policy.observation_space),
            "action_space": space_to_dict(policy.action_space),
            "explore": policy.explore,
            "state": state,
            "max_observations": self._limits.queued,
            "max_request_bytes": self._limits.request_bytes,
            "max_message_bytes": self._limits.message_bytes,
        }

    async def _described_policy(self, request: web.Request) -> web.Response:
        return web.Response(body=self._described, content_type=JSON)

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.page(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _openapi_page(self, request: web.Request) -> web.Response:
        return web.Response(body=self._openapi, content_type=JSON)


def _refusal(error: Exception) -> web.Response:
    """The answer to a request that has this error, which is logged where the server failed."""
    if (response := refused(error)) is not None:
        return response
    log.error("the policy server failed", exc_info=error)
    return web.Response(status=500, text="the server failed, as its log says")
