"""The page that shows the policy play: its WebSocket, its headers, and what is refused."""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import WSMsgType
from finished import MEMORY, finished, ppo
from gymnasium import spaces
from PIL import Image
from served import Ask, served

from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import ConfigError, EnvironmentError
from reef.serving import play
from reef.serving.finished import FinishedPolicy
from reef.serving.play import Game, png

ENV = "shades:Shades"


class Pair(MultiAgentEnv):
    """Two agents."""

    possible_agents = ("a", "b")
    observation_spaces = dict.fromkeys("ab", spaces.Box(0.0, 9.0, (1,), np.float32))
    action_spaces = dict.fromkeys("ab", spaces.Discrete(2))

    def __init__(self, _: Any) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return dict.fromkeys("ab", np.zeros(1, np.float32)), {}

    def step(self, actions: dict[str, int]) -> Any:
        raise NotImplementedError


def shown(folder: Path, env_config: dict[str, Any] | None = None, **settings: Any) -> FinishedPolicy:
    """A policy that was trained where nothing is drawn, and is shown in an environment with this configuration."""
    own = {"env_config": env_config or {}}
    return finished(ppo(env=ENV, evaluation_config=own, **settings), folder)


async def step_of(socket: aiohttp.ClientWebSocketResponse) -> tuple[dict[str, Any], Any]:
    """The numbers after a step, and the picture [height, width, 3]."""
    numbers = await socket.receive(timeout=30)
    assert numbers.type is WSMsgType.TEXT, numbers
    found = json.loads(numbers.data)
    if "error" in found:
        return found, None
    with Image.open(io.BytesIO((await socket.receive(timeout=30)).data)) as picture:
        return found, np.asarray(picture.convert("RGB"))


def test_numbers_and_pictures_are_those_of_the_environment(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect("/v1/play") as socket:
            for t in range(4):
                numbers, picture = await step_of(socket)
                ended = "terminated" if t == 3 else None
                assert numbers == {"episode": 1, "step": t, "reward": 2.0 * (t > 0), "return": 2.0 * t, "ended": ended}
                assert picture.shape == (20, 30, 3)
                assert (picture == 10 * t).all()
            numbers, picture = await step_of(socket)
            assert (numbers["episode"], numbers["step"], numbers["return"]) == (2, 0, 0.0)
            assert (picture == 0).all()

    served(shown(tmp_path / "c", {"length": 3}), talk, play=True)


def test_an_episode_is_cut_off_at_the_horizon(tmp_path: Path) -> None:
    policy = shown(tmp_path / "c", horizon=3)
    game = Game(policy)
    game.begin()
    ended = [game.step(policy.act([game.asked()])[0]).numbers["ended"] for _ in range(3)]
    assert ended == [None, None, "truncated"]


def test_a_policy_with_a_memory_plays_as_in_an_evaluation(tmp_path: Path) -> None:
    policy = shown(tmp_path / "c", model=MEMORY)
    game = Game(policy)
    game.begin()
    state, reward = None, 0.0
    for t in range(5):
        asked = game.asked()
        expected = policy.read([np.full(1, t)], [state], None if state is None else [reward])
        (mine,), (other,) = policy.act([asked]), policy.act([expected])
        assert mine.actions == other.actions
        np.testing.assert_allclose(mine.states[0][0], other.states[0][0])
        state, reward = other.states[0], game.step(mine).numbers["reward"]


async def quiet(socket: aiohttp.ClientWebSocketResponse) -> int:
    """How many steps come until none does for a while."""
    count = 0
    while True:
        try:
            await asyncio.wait_for(socket.receive(), 0.5)
        except TimeoutError:
            return count // 2
        count += 1


def test_it_pauses_plays_on_and_begins_again(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        # A receive that is given up loses nothing: nothing came.
        async with client.ws_connect("/v1/play", timeout=aiohttp.ClientWSTimeout(ws_receive=None)) as socket:
            first = await step_of(socket)
            await socket.send_str("pause")
            await quiet(socket)
            assert await quiet(socket) == 0
            await socket.send_str("reset")
            numbers, _ = await step_of(socket)
            assert (numbers["episode"], numbers["step"]) == (first[0]["episode"] + 1, 0)
            assert await quiet(socket) == 0  # it is paused still
            await socket.send_str("play")
            assert [(await step_of(socket))[0]["step"] for _ in range(3)] == [1, 2, 3]

    served(shown(tmp_path / "c", {"length": 1000}), talk, play=True)


@pytest.mark.parametrize(
    ("send", "problem"),
    [("faster", "'faster': expected play, pause or reset."), (b"\xff", "'a binary message': expected")],
)
def test_another_command_is_refused(tmp_path: Path, send: Any, problem: str) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect("/v1/play") as socket:
            await (socket.send_str(send) if isinstance(send, str) else socket.send_bytes(send))
            while "error" not in (found := (await step_of(socket))[0]):
                pass
            assert found["error"].startswith(problem)
            while not socket.closed:
                await socket.receive(timeout=30)
            assert socket.close_code == aiohttp.WSCloseCode.POLICY_VIOLATION

    served(shown(tmp_path / "c"), talk, play=True)


def test_what_the_environment_raises_is_said_and_ends_it(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        async with client.ws_connect("/v1/play") as socket:
            while "error" not in (found := (await step_of(socket))[0]):
                pass
            assert found["error"].startswith(f"environment {ENV!r} raised in step() of --play: ZeroDivisionError")
            assert (await socket.receive(timeout=30)).type is WSMsgType.CLOSE
        assert (await ask({"observation": [0.0]}))[0] == 200

    served(shown(tmp_path / "c", {"fails_at": 2}), talk, play=True)


def test_a_few_watch_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "WATCHERS", 1)

    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect("/v1/play") as socket:
            await step_of(socket)
            async with client.ws_connect("/v1/play") as second:
                assert (await step_of(second))[0] == {"error": "1 watch already. Try again later."}
                assert (await second.receive(timeout=30)).type is WSMsgType.CLOSE
                assert second.close_code == aiohttp.WSCloseCode.TRY_AGAIN_LATER
            await step_of(socket)
        for _ in range(100):  # until the server has seen that it is gone
            async with client.ws_connect("/v1/play") as third:
                if "error" not in (await step_of(third))[0]:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError("no other one may watch")

    served(shown(tmp_path / "c"), talk, play=True)


def test_an_environment_that_is_made_for_a_person_who_has_gone_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, begun = shown(tmp_path / "c"), threading.Event()
    made: list[Game] = []
    closed: list[Game] = []

    class Slow(Game):
        def __init__(self, policy: FinishedPolicy) -> None:
            begun.set()
            time.sleep(0.5)
            super().__init__(policy)
            made.append(self)

        def close(self) -> None:
            super().close()
            closed.append(self)

    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        assert made == closed and len(made) == 1, "when the server started"
        begun.clear()
        async with client.ws_connect("/v1/play"):
            await asyncio.to_thread(begun.wait, 30)
        for _ in range(100):
            if len(closed) == 2:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it stays open")

    monkeypatch.setattr(play, "Game", Slow)
    served(policy, talk, play=True)


def test_a_person_who_does_not_look_holds_up_nobody(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        async with client.ws_connect("/v1/play") as idle, client.ws_connect("/v1/play") as socket:
            await step_of(idle)
            for _ in range(10):
                await step_of(socket)
            assert (await ask({"observation": [0.0]}))[0] == 200

    served(shown(tmp_path / "c"), talk, play=True)


def test_the_page_loads_nothing_from_elsewhere_and_holds_no_token(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        first, second = await client.get("/play"), await client.get("/play")
        text, policy = await first.text(), first.headers["Content-Security-Policy"]
        (nonce,) = set(re.findall(r'nonce="(.+?)"', text))
        assert f"script-src 'nonce-{nonce}'" in policy
        assert policy.startswith("default-src 'none';")
        assert nonce not in await second.text()
        assert "http://" not in text and "https://" not in text
        assert "secret" not in text and "{" + "NONCE" not in text
        assert 'needsToken = "yes"' in text
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect("/v1/play")
        assert refused.value.status == 401
        async with client.ws_connect("/v1/play", protocols=["reef", "reef.token.c2VjcmV0"]) as socket:
            await step_of(socket)

    served(shown(tmp_path / "c"), talk, token="secret", play=True)


def test_without_play_there_is_no_page(tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        assert [(await client.get(path)).status for path in ("/play", "/v1/play")] == [404, 404]

    served(shown(tmp_path / "c"), talk)


def test_an_environment_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    policy = shown(tmp_path / "c", {"returns": 3})
    with pytest.raises(EnvironmentError, match="returned 3 .int. from render.*--play shows environments with"):
        Game(policy).begin()
    config = policy.chooser.config.copy()
    config.env = None
    policy.chooser.config = config
    with pytest.raises(ConfigError, match="--play: applications trained this policy, and no environment is known"):
        Game(policy)
    config.env = Pair
    with pytest.raises(ConfigError, match="--play: environment 'Pair' has several agents. Use reef evaluate"):
        Game(policy)


def test_a_png_is_the_picture() -> None:
    frame = np.random.default_rng(0).integers(0, 256, (7, 5, 3), np.uint8)
    with Image.open(io.BytesIO(png(frame))) as picture:
        assert (np.asarray(picture) == frame).all()
