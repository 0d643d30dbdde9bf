"""Debian's Firefox for Playwright, by WebDriver BiDi; Playwright starts this program in place of Firefox.

Playwright sets a colour scheme on every page (`emulation.setMediaFeaturesOverride`), which this Firefox does not
support yet. This program therefore relays all messages between them and answers that one itself."""

import asyncio
import json
import re
import signal
import sys
from typing import Any

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

_LISTENS = re.compile(rb"WebDriver BiDi listening on (ws://\S+)")
_UNKNOWN = "emulation.setMediaFeaturesOverride"


async def main() -> int:
    """Start Firefox (the first argument) with Playwright's options, and print this program's address instead of
    Firefox's."""
    firefox = await asyncio.create_subprocess_exec(*sys.argv[1:], stderr=asyncio.subprocess.PIPE)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, firefox.terminate)
    assert firefox.stderr
    while line := await firefox.stderr.readline():
        if found := _LISTENS.search(line):
            break
    else:
        return await firefox.wait()
    address = found[1].decode()

    async def between(playwright: ServerConnection) -> None:
        path = playwright.request.path if playwright.request else ""
        async with connect(address.rstrip("/") + path, max_size=None) as browser:
            there, back = (
                asyncio.create_task(_asked(playwright, browser)),
                asyncio.create_task(_told(browser, playwright)),
            )
            await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()

    async with serve(between, "127.0.0.1", 0, max_size=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        print(f"WebDriver BiDi listening on ws://127.0.0.1:{port}", file=sys.stderr, flush=True)
        while await firefox.stderr.read(65536):
            pass
        return await firefox.wait()


async def _asked(playwright: Any, browser: Any) -> None:
    async for message in playwright:
        command = json.loads(message)
        if command.get("method") == _UNKNOWN:
            await playwright.send(json.dumps({"type": "success", "id": command["id"], "result": {}}))
        else:
            await browser.send(message)


async def _told(browser: Any, playwright: Any) -> None:
    async for message in browser:
        await playwright.send(message)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
