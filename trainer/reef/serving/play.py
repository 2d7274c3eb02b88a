"""A page on which a person sees the policy play: an environment for each who watches, stepped and drawn here."""

from __future__ import annotations

import asyncio
import logging
import secrets
import struct
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from aiohttp import WSCloseCode, WSMsgType, web

from reef.envs.check import frame_problem
from reef.envs.context import EnvContext
from reef.envs.failures import env_name, failure
from reef.envs.make import make_env
from reef.envs.multi_agent import is_multi_agent
from reef.errors import ConfigError, EnvironmentError, ReefError
from reef.external.listening.refusals import BusyError
from reef.nn.queries.policy import PREV_REWARDS
from reef.serving.finished import ActionRequest, ActionResponse, FinishedPolicy
from reef.serving.sockets import TAKEN_S, Socket, opened
from reef.types import Array

log = logging.getLogger(__name__)
PAGE = "/play"
WATCHERS = 4  # at the same time; each has an environment
COMMAND_BYTES = 1000
USUAL_FRAMES_PER_SECOND = 30
LAST_FRAME_S = 1.0  # for which the end of an episode is shown
T = TypeVar("T")


class Shown(NamedTuple):
    """What a person sees after a step."""

    picture: bytes  # PNG
    numbers: dict[str, Any]


class Game:
    """An environment in which the policy plays. One thread makes, steps and draws all of them."""

    def __init__(self, policy: FinishedPolicy) -> None:
        """Raises ConfigError or EnvironmentError where there is none, or none that can be shown."""
        config = policy.chooser.config
        self._policy, self._name, self._horizon = policy, env_name(config.env), config.horizon
        if config.env is None:
            raise ConfigError("--play: applications trained this policy, and no environment is known. Leave it out.")
        self._env: Any = make_env(config, EnvContext(config.env_config, render_mode="rgb_array"))
        if is_multi_agent(self._env):
            self.close()
            raise ConfigError(f"--play: environment {self._name!r} has several agents. Use reef evaluate --video-dir.")
        metadata = getattr(self._env, "metadata", None) or {}
        self.frames_per_second = float(metadata.get("render_fps") or USUAL_FRAMES_PER_SECOND)
        self._episode = self._length = 0
        self._return = self._reward = 0.0
        self._obs: Any = None
        self._state: list[Array] | None = None
        self.has_ended = True

    def begin(self) -> Shown:
        """Begin an episode."""
        try:
            self._obs, _ = self._env.reset()
        except Exception as error:
            raise failure(self._name, "reset", "of --play", error) from error
        self._episode, self._length, self._return, self._reward = self._episode + 1, 0, 0.0, 0.0
        self._state, self.has_ended = None, False
        return self._shown(None)

    def asked(self) -> ActionRequest:
        """What the policy is asked next."""
        reads_rewards = self._state is not None and PREV_REWARDS in self._policy.state_names
        states = [self._state] if self._policy.state_names else None
        return self._policy.read([self._obs], states, [self._reward] if reads_rewards else None)

    def step(self, acted: ActionResponse) -> Shown:
        """Do what the policy chose."""
        try:
            self._obs, reward, terminated, truncated, _ = self._env.step(acted.actions[0])
        except Exception as error:
            raise failure(self._name, "step", "of --play", error) from error
        self._state = acted.states[0]
        self._length, self._reward = self._length + 1, float(reward)
        self._return += self._reward
        truncated = truncated or self._length == self._horizon
        self.has_ended = bool(terminated or truncated)
        return self._shown("terminated" if terminated else "truncated" if truncated else None)

    def _shown(self, ended: str | None) -> Shown:
        try:
            frame = self._env.render()
        except Exception as error:
            raise EnvironmentError(f"environment {self._name!r} raised in render(): {error!r}") from error
        if problem := frame_problem(frame):
            raise EnvironmentError(
                f"environment {self._name!r} {problem} --play shows environments with render_mode='rgb_array'."
            )
        numbers = {
            "episode": self._episode,
            "step": self._length,
            "reward": self._reward,
            "return": self._return,
            "ended": ended,
        }
        return Shown(png(frame), numbers)

    def close(self) -> None:
        """Free what the environment holds."""
        self._env.close()


def png(
    frame: Array,  # [height, width, 3] uint8
) -> bytes:
    """The picture as a PNG file."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    height, width, _ = frame.shape
    lines = np.zeros((height, 1 + 3 * width), np.uint8)  # each begins with 0: it has no filter
    lines[:, 1:] = frame.reshape(height, -1)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines.tobytes(), 1)) + chunk(b"IEND", b"")


class Controls:
    """What the person who watches has asked for."""

    def __init__(self) -> None:
        self._is_playing, self._wants_reset = True, False
        self._changed = asyncio.Event()

    def obey(self, command: str) -> None:
        """Play on, pause, or begin another episode; ConfigError for another command."""
        if command not in ("play", "pause", "reset"):
            raise ConfigError(f"{command[:50]!r}: expected play, pause or reset.")
        if command == "reset":
            self._wants_reset = True
        else:
            self._is_playing = command == "play"
        self._changed.set()

    def take_reset(self) -> bool:
        """Whether another episode is asked for since the last call."""
        found, self._wants_reset = self._wants_reset, False
        return found

    async def until_due(self, wait_s: float) -> None:
        """Wait for `wait_s` seconds, and while it is paused, but never on for a reset."""
        try:
            async with asyncio.timeout(wait_s):
                await self._until(lambda: self._wants_reset)
        except TimeoutError:
            await self._until(lambda: self._wants_reset or self._is_playing)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


class Play:
    """Answers the requests of the page."""

    def __init__(
        self, policy: FinishedPolicy, act: Callable[[ActionRequest], Awaitable[ActionResponse]], *, has_token: bool
    ) -> None:
        """Makes an environment once, to see that it can be shown; raises as `Game`."""
        self._policy, self._act, self._has_token = policy, act, has_token
        self._html = (files("reef.serving") / "play.html").read_text("utf-8")
        self._thread = ThreadPoolExecutor(1, "play")
        self._watchers: set[asyncio.Task[None]] = set()
        self._thread.submit(self._try).result()

    def _try(self) -> None:
        game = Game(self._policy)
        try:
            game.begin()
        finally:
            game.close()

    async def page(self, request: web.Request) -> web.Response:
        """The page, which holds no secret: its script asks for the token, and gives it to its WebSocket."""
        nonce = secrets.token_urlsafe(16)
        needs = "yes" if self._has_token else "no"
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        text = self._html.replace("{NONCE}", nonce).replace("{NEEDS_TOKEN}", needs)
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """The WebSocket of a page: numbers and a picture after each step, until the person closes the page."""
        socket = await opened(request, COMMAND_BYTES)
        if len(self._watchers) >= WATCHERS:
            await _end(socket, WSCloseCode.TRY_AGAIN_LATER, f"{WATCHERS} watch already. Try again later.")
            return socket  # type: ignore[no-any-return]
        watcher = asyncio.create_task(self._show(socket))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        await asyncio.wait([watcher])
        await socket.close(code=WSCloseCode.GOING_AWAY)
        return socket  # type: ignore[no-any-return]

    def close(self) -> None:
        """Stop all that is played."""
        for watcher in self._watchers:
            watcher.cancel()

    async def _show(self, socket: Socket) -> None:
        """Play until the person has gone."""
        controls = Controls()
        playing = asyncio.create_task(self._play(socket, controls))
        try:
            async for message in socket:
                if message.type is WSMsgType.ERROR:
                    break
                is_text = message.type is WSMsgType.TEXT
                controls.obey(message.data.decode("utf-8", "replace") if is_text else "a binary message")
        except ConfigError as error:
            await _end(socket, WSCloseCode.POLICY_VIOLATION, str(error))
        finally:
            playing.cancel()
            await asyncio.wait([playing])

    async def _play(self, socket: Socket, controls: Controls) -> None:
        games: list[Game] = []  # the one, once it is made

        def make() -> Game:
            games.append(Game(self._policy))
            return games[0]

        def close() -> None:
            for game in games:
                game.close()

        try:
            try:
                await self._episodes(await self._in_thread(make), socket, controls)
            finally:  # behind `make`, also where the person has gone before it ends
                self._thread.submit(close)
        except (ConnectionError, TimeoutError):  # the person is gone
            await socket.close()
        except (ReefError, BusyError) as error:
            await _end(socket, WSCloseCode.INTERNAL_ERROR, str(error).partition("\n")[0])
        except Exception:
            log.exception("the environment cannot be shown")
            await _end(socket, WSCloseCode.INTERNAL_ERROR, "the server failed, as its log says")

    async def _episodes(self, game: Game, socket: Socket, controls: Controls) -> None:
        loop = asyncio.get_running_loop()
        shown = await self._in_thread(game.begin)
        due_at = loop.time()
        while True:
            await _say(socket, shown.numbers)
            async with asyncio.timeout(TAKEN_S):
                await socket.send_bytes(shown.picture)
            due_at = max(due_at + 1 / game.frames_per_second, loop.time())
            await controls.until_due(LAST_FRAME_S if game.has_ended else due_at - loop.time())
            if controls.take_reset() or game.has_ended:
                shown = await self._in_thread(game.begin)
            else:
                shown = await self._in_thread(game.step, await self._act(game.asked()))

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


async def _say(socket: Socket, numbers: dict[str, Any]) -> None:
    async with asyncio.timeout(TAKEN_S):
        await socket.send_frame(msgspec.json.encode(numbers), WSMsgType.TEXT)


async def _end(socket: Socket, code: int, problem: str) -> None:
    """Say why it ends, and close."""
    with suppress(ConnectionError, TimeoutError):
        await _say(socket, {"error": problem})
    await socket.close(code=code)
