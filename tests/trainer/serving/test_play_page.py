"""The page of `reef serve --play` in a real browser: reef.serving.play with its play.html."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from browser import CHROMIUM, Page, page
from finished import finished, ppo
from served import Ask, served

from reef.serving.finished import FinishedPolicy

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
COLOUR = "document.getElementById('picture').getContext('2d').getImageData(%d, 5, 1, 1).data[0]"
STEP = "Number(document.getElementById('step').textContent)"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> FinishedPolicy:
    config = ppo(env="shades:Shades", evaluation_config={"env_config": {"length": 200}})
    return finished(config, tmp_path_factory.mktemp("policy") / "c")


def text(name: str) -> str:
    return f"document.getElementById('{name}').textContent"


def click(name: str) -> str:
    return f"document.getElementById('{name}').click()"


async def colours(own: Page, seconds: float = 1.0) -> set[int]:
    """What one pixel of the canvas showed in this time."""
    found = await own.value(
        "new Promise((done) => { const seen = new Set();"
        f"const timer = setInterval(() => seen.add({COLOUR % 3}), 10);"
        f"setTimeout(() => {{ clearInterval(timer); done([...seen]); }}, {1000 * seconds}); }})"
    )
    return set(found)


def test_the_canvas_shows_the_environment_and_obeys_the_buttons(policy: FinishedPolicy, tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with page(tmp_path / "browser") as own:
            await own.open(f"{client._base_url}/play")
            await own.until(f"{STEP} > 3")
            assert await own.value("['width', 'height'].map((size) => document.getElementById('picture')[size])") == [
                30,
                20,
            ]
            seen: set[int] = set()
            while len(seen) < 8:
                seen |= await colours(own)
            assert all(colour % 2 == 0 for colour in seen)  # 10 times the step, modulo 256
            assert await own.value(f"{COLOUR % 3} === {COLOUR % 29}")
            assert await own.value(text("reward")) == "2"
            await own.value(click("pause"))
            await colours(own)  # what was under way has come
            stopped = await own.value(STEP)
            assert len(await colours(own)) == 1
            assert await own.value(f"{COLOUR % 3} === 10 * {STEP} % 256")
            assert await own.value(f"{text('return')} === String(2 * {STEP})")
            assert await own.value(STEP) == stopped
            episode = int(await own.value(text("episode")))
            await own.value(click("reset"))
            await own.until(f"{text('episode')} === '{episode + 1}' && {STEP} === 0 && {COLOUR % 3} === 0")
            await own.value(click("pause"))
            await own.until(f"{STEP} > 3")
            assert own.said == []

    served(policy, talk, play=True)


def test_the_token_is_asked_for_and_stays_out_of_the_address(policy: FinishedPolicy, tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with page(tmp_path / "browser") as own:
            await own.open(f"{client._base_url}/play#token=wrong")
            await own.until("!document.getElementById('ask').hidden")
            assert "Is the token right?" in await own.value(text("status"))
            assert await own.value("location.href") == f"{client._base_url}/play"
            await own.value("document.getElementById('token').value = 's+/e c%'")
            await own.value("document.querySelector('#ask button').click()")
            await own.until(f"{STEP} > 3")
            assert await own.value("document.getElementById('ask').hidden")
            assert await own.value("document.getElementById('token').value") == ""
            assert await own.value("localStorage.length + sessionStorage.length + document.cookie.length") == 0

    served(policy, talk, token="s+/e c%", play=True)


def test_a_page_of_another_server_cannot_watch(policy: FinishedPolicy, tmp_path: Path) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with page(tmp_path / "browser") as own:
            await own.open("data:text/html,other")
            connect = (
                "new Promise((done) => { const socket = new WebSocket('%s', ['reef']);"
                "socket.onopen = () => done('open'); socket.onerror = () => done('refused'); })"
            )
            assert await own.value(connect % f"ws://127.0.0.1:{client._base_url.port}/v1/play") == "refused"
            assert await own.value(connect % f"ws://127.0.0.1:{client._base_url.port}/v1/actions") == "refused"

    served(policy, talk, play=True)
