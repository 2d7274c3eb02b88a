"""The policy server: HTTP requests of applications, answered in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from reef.errors import ExternalEpisodeError
from reef.external.episodes.episode import LONGEST, AgentObservation, ExternalEpisode, Played
from reef.external.episodes.open_episodes import ClientLimits, OpenEpisodes
from reef.external.episodes.queue import StepQueue
from reef.external.episodes.steps import ChosenAction
from reef.external.fragments import checked
from reef.external.last_answers import LastAnswers
from reef.external.listening.bodies import BodyMemory, body_of
from reef.external.listening.connections import serve
from reef.external.listening.refusals import BODY_S, IDLE_S, BusyError, refused
from reef.external.listening.together import settle
from reef.external.listening.token import TokenCheck
from reef.external.policies import PoliciesOfApplications, actions_of, rows_by_episode
from reef.external.wire import (
    CONTENT_TYPE,
    REQUEST,
    VERSION,
    Actions,
    EndEpisode,
    EpisodeStarted,
    Fragments,
    PublishedWeights,
    StartEpisode,
    Steps,
    decode,
    encode,
)

log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CLIENTS = 2000  # whose last answers are kept


class PolicyServer:
    """Answers applications; all but `stop` happens in its thread."""

    def __init__(
        self,
        listening: socket.socket,
        policies: PoliciesOfApplications,
        queue: StepQueue,
        limits: ClientLimits,
        token: str | None,
    ) -> None:
        """Begin to answer at once; `token` is what clients must send, None: nothing."""
        self._policies, self._queue, self._limits = policies, queue, limits
        self._token, self._bodies = TokenCheck(token), BodyMemory(limits.request_bytes)
        self._episodes = OpenEpisodes(limits)
        # steps that open episodes hold; those that are to be whole may hold one of the longest more
        self._most_held = queue.most + (LONGEST if policies.whole else 0)
        self._acting: set[str] = set()  # ids of the episodes that wait for an action
        self._waiting: list[
            tuple[Sequence[AgentObservation], asyncio.Future[list[tuple[Any, ChosenAction | None]]]]
        ] = []
        self._warned_of_crowd = False
        self._answers: LastAnswers[bytes] = LastAnswers(CLIENTS)
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self.refused: Counter[int] = Counter()  # requests that were, by the status of the answer
        self.failure: BaseException | None = None  # what ended the thread
        self._thread = threading.Thread(target=self._run, args=(listening,), name="policy-server", daemon=True)
        self._thread.start()

    @property
    def open_episodes(self) -> int:
        """Number of episodes that are open; from any thread."""
        return len(self._episodes)

    def stop(self) -> None:
        """Close all connections and wait for the thread."""
        with contextlib.suppress(RuntimeError):  # stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def drop_episodes(self) -> None:
        """Drop all open episodes, whose clients get EpisodeLostError, and what waits in the queue.

        The caller does not hold the lock of the policies, for which the server's thread may wait.
        """

        def drop() -> None:
            self._episodes.drop_all()
            self._queue.clear()
            dropped.set()

        dropped = threading.Event()
        with contextlib.suppress(RuntimeError):  # stopped before
            self._loop.call_soon_threadsafe(drop)
            while not dropped.wait(0.1) and self._thread.is_alive():
                pass

    def _run(self, listening: socket.socket) -> None:
        try:
            with contextlib.closing(self._loop):
                self._loop.run_until_complete(self._serve(listening))
        except BaseException as error:
            log.exception("the policy server stopped")
            self.failure = error

    async def _serve(self, listening: socket.socket) -> None:
        app = web.Application(client_max_size=self._limits.request_bytes, middlewares=[self._counted, self._answered])
        app.router.add_post(f"{VERSION}/episodes", self._start)
        app.router.add_post(f"{VERSION}/steps", self._steps)
        app.router.add_post(f"{VERSION}/episodes/end", self._end)
        app.router.add_post(f"{VERSION}/fragments", self._fragments)
        app.router.add_get(f"{VERSION}/policy", self._specification)
        app.router.add_get(f"{VERSION}/weights", self._weights)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=IDLE_S)
        await runner.setup()
        server = await serve(runner, listening, self._limits.connections)
        await self._stopping.wait()
        server.close()
        await runner.cleanup()

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler, counted where it refuses the request."""
        try:
            response = await handler(request)
        except web.HTTPException as refusal:
            self.refused[refusal.status] += 1
            raise
        if response.status >= 400:
            self.refused[response.status] += 1
        return response

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The answer of a handler; what it raises becomes a status and a text."""
        if (refusal := self._token.refusal(request)) is not None:
            return refusal
        # A web page can send other types from a browser on this machine without asking the server first.
        if request.method == "POST" and request.content_type != CONTENT_TYPE:
            return web.Response(status=415, text=f"Content-Type: {request.content_type}: expected {CONTENT_TYPE}")
        try:
            async with self._bodies.room_for(request):
                return await self._once(request, handler)
        except web.HTTPException:
            raise
        except Exception as error:
            if (response := refused(error)) is not None:
                return response
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
        found = self._episodes.start(message.episode_id, message.training_enabled)
        return _response(EpisodeStarted(episode_id=found, has_agents=self._policies.has_agents))

    def _found(self, episode_id: str) -> ExternalEpisode:
        """An open episode, which waits for no action."""
        if episode_id in self._acting:
            raise ExternalEpisodeError(f"episode {episode_id!r} waits for an action already: ask for one at a time.")
        return self._episodes.found(episode_id)

    async def _steps(self, request: web.Request) -> web.Response:
        steps = decode(await _body(request), Steps).steps
        ids = [step.episode_id for step in steps]
        found = {episode_id: self._found(episode_id) for episode_id in ids}
        episodes = [found[episode_id] for episode_id in ids]
        if len({(step.episode_id, step.agent_id) for step in steps}) < len(steps):
            raise ExternalEpisodeError(
                "an episode, or an agent, occurs twice in one request: ask for one action at a time."
            )
        if any(episode.learns for episode in episodes):
            self._check_room(episodes)
        asked = self._policies.read(steps, episodes)
        self._acting.update(ids)
        try:
            acted = await self._act(asked)
        finally:
            self._acting.difference_update(ids)
        for episode_id in found:
            self._episodes.found(episode_id)  # not dropped meanwhile
        for episode_id, rows in rows_by_episode(steps, asked, acted).items():
            with self._episodes.counted(found[episode_id]):
                self._put(found[episode_id].record(*rows, self._cut_after))
        return _response(Actions(actions=actions_of(steps, asked, acted)))

    @property
    def _is_crowded(self) -> bool:
        """Whether the open episodes hold as many steps as may wait in the queue."""
        return self._episodes.held >= self._queue.most

    @property
    def _cut_after(self) -> int:
        """After how many steps an episode is cut: with the next one, where all hold too many and it may be cut."""
        cut = self._episodes.held >= self._most_held and self._policies.may_cut
        return 1 if cut else self._policies.fragment_length

    def _check_room(self, episodes: Sequence[ExternalEpisode]) -> None:
        """Raise BusyError where these episodes are to wait, ExternalEpisodeError where they are to end.

        Where `_is_crowded`, episodes that need not be whole are cut with each step. Those that are to be go on, and no
        other one begins while one of them does. Where none does, their application may wait for this one. When all
        hold `_most_held` steps, they are cut too; those that have no critic, and so cannot be, go on no more.
        """
        if self._queue.is_full:
            raise BusyError("the queue of steps is full until some were learned from")
        if not self._is_crowded:
            return
        self._episodes.drop_idle()
        if self._is_crowded and not self._warned_of_crowd:
            self._warned_of_crowd = True
            log.warning(
                "open episodes hold %d steps, with max_queued_steps=%d: until they hold fewer, %s. Raise it, or let "
                "fewer applications play at a time.",
                self._episodes.held, self._queue.most,
                "no other begins while they go on" if self._policies.whole else "they are cut into shorter fragments",
            )  # fmt: skip
        begins = not any(episode.length for episode in episodes)
        if self._is_crowded and self._policies.whole and begins and self._episodes.any_goes_on():
            raise BusyError("open episodes hold as many steps as may wait: no other one begins until some end")
        if self._episodes.held >= self._most_held and not self._policies.may_cut:
            if begins:
                raise BusyError("open episodes hold the most steps: no other one begins until some end")
            raise ExternalEpisodeError(
                f"open episodes hold {self._episodes.held} steps, which is the most: use_critic=False learns from "
                "whole episodes. End this one, and let fewer applications play at a time, or use a critic."
            )

    def _put(self, played: Played | None) -> None:
        if played is not None:
            self._queue.put(played)

    async def _act(self, asked: Sequence[AgentObservation]) -> list[tuple[Any, ChosenAction | None]]:
        """As `PoliciesOfApplications.act`. Requests that came together are one forward pass."""
        if not asked:
            return []
        future = self._loop.create_future()
        self._waiting.append((asked, future))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._act_for_all)
        acted: list[tuple[Any, ChosenAction | None]] = await future
        return acted

    def _act_for_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        answers = self._policies.answers([asked for asked, _ in waiting])
        settle([future for _, future in waiting], answers)

    async def _end(self, request: web.Request) -> web.Response:
        message = decode(await _body(request), EndEpisode)
        episode = self._found(message.episode_id)
        last = self._policies.last(message.steps, episode)
        self._episodes.drop(message.episode_id)
        self._put(episode.end(last, truncated=message.truncated))
        return _response(None)

    async def _fragments(self, request: web.Request) -> web.Response:
        message = decode(await _body(request), Fragments)
        if self._queue.is_full:
            raise BusyError("the queue of steps is full until some were learned from")
        self._put(checked(message, self._policies))
        return self._newest()

    async def _specification(self, request: web.Request) -> web.Response:
        return _response(self._policies.specification(self._limits.request_bytes))

    def _newest(self) -> web.Response:
        """Which weights are the newest."""
        version, timestep = self._policies.published()
        return _response(PublishedWeights(version=version, timestep=timestep))

    async def _weights(self, request: web.Request) -> web.Response:
        if request.query.get("version") == str(self._policies.published()[0]):
            return self._newest()
        weights, version, timestep = self._policies.weights()
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
