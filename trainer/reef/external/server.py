"""The policy server: HTTP requests of applications, answered in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError
from reef.external.acting import PolicyOfApplications
from reef.external.episodes import ExternalEpisode, RecordedSteps, StepQueue
from reef.external.fragments import checked_fragment
from reef.external.last_answers import LastAnswers
from reef.external.listening.connections import body_of, serve
from reef.external.listening.token import TokenCheck
from reef.external.wire import (
    CONTENT_TYPE,
    REQUEST,
    VERSION,
    Actions,
    EndEpisode,
    EpisodeStarted,
    Fragment,
    MessageError,
    PublishedWeights,
    StartEpisode,
    Step,
    Steps,
    decode,
    encode,
)
from reef.types import Array

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONNECTIONS = 500  # one too many is answered 503; a client tries again
CLIENTS = 2000  # whose last answers are kept
IDLE_S = 60.0  # seconds after which a connection without a request is closed; a client opens it again
BODY_S = 30.0  # seconds in which the body of a request must come
RETRY_AFTER_S = 1
LONGEST_ID = 200  # characters
Acted = tuple[Array, Array | None, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much clients may ask for."""

    episodes: int  # open at the same time
    episode_timeout_s: float  # without a request for it
    request_bytes: int


class BusyError(Exception):
    """There is no room now; the client is to try again."""


class PolicyServer:
    """Answers applications; all but `stop` happens in its thread."""

    def __init__(
        self,
        listening: socket.socket,
        policy: PolicyOfApplications,
        queue: StepQueue,
        limits: Limits,
        token: str | None,
    ) -> None:
        """Begin to answer at once; `token` is what clients must send, None: nothing."""
        self._policy, self._queue, self._limits = policy, queue, limits
        self._token = TokenCheck(token)
        self._episodes: dict[str, ExternalEpisode] = {}
        self._acting: set[str] = set()  # ids of the episodes that wait for an action
        self._waiting: list[tuple[Sequence[Array], asyncio.Future[list[tuple[Array, Acted]]]]] = []
        self._answers: LastAnswers[bytes] = LastAnswers(CLIENTS)
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self.failure: BaseException | None = None  # what ended the thread
        self._thread = threading.Thread(target=self._run, args=(listening,), name="policy-server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and wait for the thread."""
        with contextlib.suppress(RuntimeError):  # stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, listening: socket.socket) -> None:
        try:
            with contextlib.closing(self._loop):
                self._loop.run_until_complete(self._serve(listening))
        except BaseException as error:
            log.exception("the policy server stopped")
            self.failure = error

    async def _serve(self, listening: socket.socket) -> None:
        app = web.Application(client_max_size=self._limits.request_bytes, middlewares=[self._answered])
        app.router.add_post(f"{VERSION}/episodes", self._start)
        app.router.add_post(f"{VERSION}/steps", self._steps)
        app.router.add_post(f"{VERSION}/episodes/end", self._end)
        app.router.add_post(f"{VERSION}/fragments", self._fragment)
        app.router.add_get(f"{VERSION}/policy", self._specification)
        app.router.add_get(f"{VERSION}/weights", self._weights)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S)
        await runner.setup()
        server = await serve(runner, listening, CONNECTIONS)
        await self._stopping.wait()
        server.close()
        await runner.cleanup()

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler; what it raises becomes a status and a text."""
        if (refusal := self._token.refusal(request)) is not None:
            return refusal
        # A web page can send other types from a browser on this machine without asking the server first.
        if request.method == "POST" and request.content_type != CONTENT_TYPE:
            return web.Response(status=415, text=f"Content-Type: {request.content_type}: expected {CONTENT_TYPE}")
        try:
            return await self._once(request, handler)
        except web.HTTPException:
            raise
        except BusyError as error:
            return web.Response(status=429, text=str(error), headers={"Retry-After": str(RETRY_AFTER_S)})
        except EpisodeLostError as error:
            return web.Response(status=404, text=str(error))
        except ExternalEpisodeError as error:
            return web.Response(status=409, text=str(error))
        except (MessageError, ConfigError) as error:
            return web.Response(status=400, text=str(error))
        except TimeoutError:
            return web.Response(status=408, text=f"the body did not come within {BODY_S:g} s")
        except Exception as error:
            log.exception("the policy server failed at %s", request.path)
            return web.Response(status=500, text="".join(traceback.format_exception(error)))

    async def _once(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler; a request that is sent again gets the answer that it had."""
        numbered = request.headers.get(REQUEST)
        if request.method != "POST" or numbered is None:
            return await handler(request)
        await _body(request)  # only a whole request counts
        return _encoded(await self._answers.once(numbered, _body_of(handler, request)))

    async def _start(self, request: web.Request) -> web.Response:
        message = decode(await _body(request), StartEpisode)
        self._drop_idle()
        if len(self._episodes) >= self._limits.episodes:
            raise BusyError(f"max_episodes={self._limits.episodes} are open")
        episode_id = uuid.uuid4().hex if message.episode_id is None else message.episode_id
        if not 0 < len(episode_id) <= LONGEST_ID:
            raise MessageError(f"episode_id has {len(episode_id)} characters, expected 1 to {LONGEST_ID}")
        if episode_id in self._episodes:
            raise ExternalEpisodeError(f"episode {episode_id!r} is open already. End it, or choose another id.")
        self._episodes[episode_id] = ExternalEpisode(episode_id, message.training_enabled)
        return _response(EpisodeStarted(episode_id=episode_id))

    def _drop_idle(self) -> None:
        """Forget episodes that no request came for in a long time: their application is gone."""
        oldest = time.monotonic() - self._limits.episode_timeout_s
        for episode_id in [key for key, episode in self._episodes.items() if episode.used_at < oldest]:
            del self._episodes[episode_id]
            log.warning("episode %r was dropped: no request for it in episode_timeout seconds", episode_id)

    def _found(self, episode_id: str) -> ExternalEpisode:
        """An open episode, which waits for no action."""
        episode = self._episodes.get(episode_id)
        if episode is None or episode.used_at < time.monotonic() - self._limits.episode_timeout_s:
            self._episodes.pop(episode_id, None)
            raise EpisodeLostError(
                f"episode {episode_id!r} is not open here: it was never started, has ended, had no request in "
                f"episode_timeout={self._limits.episode_timeout_s:g} s, or the server was started again. Start another."
            )
        if episode_id in self._acting:
            raise ExternalEpisodeError(f"episode {episode_id!r} waits for an action already: ask for one at a time.")
        episode.used_at = time.monotonic()
        return episode

    async def _steps(self, request: web.Request) -> web.Response:
        steps = decode(await _body(request), Steps).steps
        episodes = [self._found(step.episode_id) for step in steps]
        ids = {step.episode_id for step in steps}
        if len(ids) < len(steps):
            raise ExternalEpisodeError("an episode occurs twice in one request: ask for one action at a time.")
        if self._queue.is_full and any(episode.learns for episode in episodes):
            raise BusyError("the queue of steps is full until some were learned from")
        for step, episode in zip(steps, episodes, strict=True):
            episode.check_reward(step.reward)
            self._policy.check_length(episode)
        read = [self._policy.read(step) for step in steps]
        self._acting |= ids
        try:
            acted = await self._act([obs for obs, _ in read])
        finally:
            self._acting -= ids
        answers = []
        for step, episode, (obs, own), (action, answer) in zip(steps, episodes, read, acted, strict=True):
            self._record(step, episode, obs, answer if own is None else (own, *answer[1:]))
            answers.append(action if own is None else step.action)
        return _response(Actions(actions=answers))

    def _record(self, step: Step, episode: ExternalEpisode, obs: Array, acted: Acted) -> None:
        episode.credit(step.reward)
        self._put(episode.cut(obs, self._policy.fragment_length))
        episode.act(obs, *acted)

    def _put(self, fragment: RecordedSteps | None) -> None:
        if fragment is not None:
            self._queue.put(fragment)

    async def _act(self, obs: Sequence[Array]) -> list[tuple[Any, Acted]]:
        """For each observation the application's action, and what is recorded of it.

        Requests that came together are one forward pass.
        """
        if not obs:
            return []
        future = self._loop.create_future()
        self._waiting.append((obs, future))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._act_for_all)
        acted: list[tuple[Any, Acted]] = await future
        return acted

    def _act_for_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            actions, inputs, version = self._policy.act([each for obs, _ in waiting for each in obs])
            values = self._policy.for_application(actions)
        except Exception as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        found = iter(zip(values, zip(actions, inputs, [version] * len(values), strict=True), strict=True))
        for obs, future in waiting:
            own = [next(found) for _ in obs]
            if not future.done():  # its client is gone
                future.set_result(own)

    async def _end(self, request: web.Request) -> web.Response:
        message = decode(await _body(request), EndEpisode)
        episode = self._found(message.episode_id)
        episode.check_reward(message.reward)
        obs = self._policy.observed(message.obs, update=False)
        episode.credit(message.reward)
        self._put(episode.end(obs, truncated=message.truncated))
        del self._episodes[message.episode_id]
        return _response(None)

    async def _fragment(self, request: web.Request) -> web.Response:
        message = decode(await _body(request), Fragment)
        if self._queue.is_full:
            raise BusyError("the queue of steps is full until some were learned from")
        self._put(checked_fragment(message, self._policy))
        return _response(None)

    async def _specification(self, request: web.Request) -> web.Response:
        return _response(self._policy.specification(self._limits.request_bytes))

    async def _weights(self, request: web.Request) -> web.Response:
        version, timestep = self._policy.published()
        if request.query.get("version") == str(version):
            return _response(PublishedWeights(version=version, timestep=timestep))
        weights, version, timestep = self._policy.weights()
        return _response(PublishedWeights(version=version, timestep=timestep, weights=weights))


async def _body(request: web.Request) -> bytes:
    return await body_of(request, BODY_S)


async def _body_of(handler: Handler, request: web.Request) -> bytes:
    response = await handler(request)
    assert isinstance(response, web.Response)
    assert isinstance(response.body, bytes)
    return response.body


def _response(message: Any) -> web.Response:
    return _encoded(encode(message))


def _encoded(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=CONTENT_TYPE)
