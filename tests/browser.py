"""A real browser without a window: Chromium, by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Its sandbox cannot be had as root.
OPTIONS = ("--headless", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage")


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.said: list[str] = []  # errors of scripts and of the page's policy

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=60)
            params = message.get("params", {})
            if message.get("method") == "Runtime.exceptionThrown" or params.get("entry", {}).get("level") == "error":
                self.said.append(json.dumps(params))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]  # type: ignore[no-any-return]

    async def value(self, expression: str) -> Any:
        """What a script returns in the page."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, seconds: float = 60.0) -> Any:
        """The value of a script once it is true."""
        end = asyncio.get_running_loop().time() + seconds
        while not (found := await self.value(expression)):
            said = await self.value("document.body.innerText")
            assert asyncio.get_running_loop().time() < end, f"{expression} did not come true on the page: {said}"
            await asyncio.sleep(0.05)
        return found

    async def open(self, url: str) -> None:
        """Load a page."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        begin = json.dumps(url.partition("#")[0])
        await self.until(f"location.href.startsWith({begin}) && document.readyState === 'complete'")

    async def screenshot(self, path: Path) -> None:
        """Write what is seen to a PNG file."""
        path.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot"))["data"]))


@asynccontextmanager
async def page(folder: Path) -> AsyncIterator[Page]:
    """A tab of a browser of its own, which ends with the block; `folder`: for what it stores."""
    assert CHROMIUM is not None
    options = [*OPTIONS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *options,
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"DevTools listening on " not in (line := await process.stderr.readline()):
                assert line, "the browser ended"
        port = line.split(b"/devtools")[0].rpartition(b":")[2].decode()
        draining = asyncio.create_task(process.stderr.read())
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            tabs = await (await client.get("/json")).json()
            (tab,) = [each for each in tabs if each["type"] == "page"]
            path = tab["webSocketDebuggerUrl"].split(port, 1)[1]
            async with client.ws_connect(path, max_msg_size=0) as socket:
                yield Page(socket)
        draining.cancel()
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # what was started may be a script that starts the browser
        await process.wait()
