"""Forms whose files are spooled as they arrive, sealed under a key of this process (`app.vault.store`). The framework
would spool them unencrypted."""

import asyncio
import codecs
import re
import urllib.parse
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile

from app import config, installations, turns
from app.access.service import Caller
from app.api import calls
from app.vault import store

_MAX_PARTS = 10
"""Maximum number of files in a form, and of its other fields. Each file takes up a file descriptor."""
_MAX_FIELD_BYTES = 1 << 20
_TURNS = turns.Turns(8, of_one=4)
"""Queue for work on files that have arrived; it leaves enough of this process's threads for other calls."""


def folder(settings: config.Settings) -> Path:
    """Return the folder for spooled files."""
    return settings.data_dir / "tmp"


class SpooledRoute(APIRoute):
    """Route whose forms are spooled to disk."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def spooled(request: Request) -> Response:
            spooling = _Request(request.scope, request.receive)
            try:
                return await answer(spooling)
            finally:
                await spooling.close()

        return spooled


class _Request(Request):
    """Request whose multipart form is read by `_FormReader`. Other forms have no files and are read by the framework.

    A form joins the queue for processing only after it has arrived in full, so that a slow sender delays no one else.
    """

    spooled: FormData | None = None
    turn: tuple[str, Future[None]] | None = None

    # Unlike the overridden method, it is not a context manager.
    async def form(self, **limits: Any) -> FormData:  # type: ignore[override]
        media_type, options = parse_options_header(self.headers.get("content-type"))
        if media_type != b"multipart/form-data":
            return await super().form(**limits)
        if self.spooled is None:
            installation: installations.Installation = self.app.state.installation
            reader = _FormReader(options, folder=folder(installation.settings))
            self.spooled = await reader.read(self.stream())
            # Pages look up the tenant later.
            caller: Caller | None = self.scope.get(calls.CALLER)
            share = caller.tenant_id if caller else calls.address_of(self.scope)
            self.turn = share, _TURNS.ask(share)
            await asyncio.wrap_future(self.turn[1])
        return self.spooled

    async def close(self) -> None:
        turn, self.turn = self.turn, None
        if turn is not None:
            _TURNS.end(*turn)
        if self.spooled is not None:
            await self.spooled.close()
        await super().close()


@dataclass(slots=True)
class _FormPart:
    """Part of a form: a field with its content, or a file."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    name: str = ""
    content: bytearray = field(default_factory=bytearray)
    file: UploadFile | None = None


class _FormReader:
    """Reader of `multipart/form-data` (RFC 7578), called back by `MultipartParser`."""

    def __init__(self, options: dict[bytes, bytes], *, folder: Path) -> None:
        boundary = options.get(b"boundary")
        if not boundary:
            raise _malformed("Missing boundary in multipart.")
        self._charset = _codec(options.get(b"charset", b"utf-8"))
        self._folder = folder
        self._fields: list[tuple[str, str]] = []
        self._files: list[tuple[str, UploadFile]] = []
        self._part = _FormPart()
        self._header_name, self._header_value = b"", b""
        self._unwritten: list[tuple[UploadFile, bytes]] = []
        self._has_ended = False
        callbacks: Any = {name[1:]: getattr(self, name) for name in dir(self) if name.startswith("_on_")}
        self._parser = MultipartParser(boundary, callbacks)

    async def read(self, stream: AsyncIterator[bytes]) -> FormData:
        """Return the form, with every file rewound to its start. All files are closed before `HTTPException` or a
        stream error is raised."""
        try:
            async for chunk in stream:
                self._parser.write(chunk)
                for file, content in self._unwritten:
                    await file.write(content)
                self._unwritten.clear()
            # The parser accepts a truncated form.
            if not self._has_ended:
                raise _malformed("Invalid multipart data.")
            for _, file in self._files:
                await file.seek(0)
        except BaseException as error:
            for _, file in self._files:
                file.file.close()
            if isinstance(error, FormParserError):
                raise _malformed("Invalid multipart data.") from None
            raise
        return FormData([*self._fields, *self._files])

    def _on_part_begin(self) -> None:
        self._part = _FormPart()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header_end(self) -> None:
        self._part.headers.append((self._header_name.lower(), self._header_value))
        self._header_name, self._header_value = b"", b""

    def _on_headers_finished(self) -> None:
        part = self._part
        disposition = dict(part.headers).get(b"content-disposition")
        _, options = parse_options_header(disposition)
        # RFC 7578 forbids `filename*`, which some clients send nevertheless, alone or next to an encoded word.
        extended = re.search(rb"filename\*=utf-8'[^']*'([^;\s]*)", disposition or b"", re.IGNORECASE)
        if extended and options.get(b"filename", b"=?").startswith(b"=?"):
            options[b"filename"] = urllib.parse.unquote_to_bytes(extended[1])
        if b"name" not in options:
            raise _malformed('The Content-Disposition header field "name" must be provided.')
        part.name = self._text(options[b"name"])
        if b"filename" not in options:
            return
        if len(self._files) == _MAX_PARTS:
            raise _malformed(f"Too many files. Maximum number of files is {_MAX_PARTS}.")
        part.file = UploadFile(
            # A spool is read and written like a binary file.
            store.create(self._folder),  # type: ignore[arg-type]
            size=0,
            filename=self._text(options[b"filename"]),
            headers=Headers(raw=part.headers),
        )
        self._files.append((part.name, part.file))

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if part.file is not None:
            self._unwritten.append((part.file, data[start:end]))
            return
        part.content += data[start:end]
        if len(part.content) > _MAX_FIELD_BYTES:
            raise _malformed(f"Part exceeded maximum size of {_MAX_FIELD_BYTES >> 10}KB.")

    def _on_part_end(self) -> None:
        if self._part.file is not None:
            return
        if len(self._fields) == _MAX_PARTS:
            raise _malformed(f"Too many fields. Maximum number of fields is {_MAX_PARTS}.")
        self._fields.append((self._part.name, self._text(self._part.content)))

    def _on_end(self) -> None:
        self._has_ended = True

    def _text(self, content: bytes | bytearray) -> str:
        try:
            return content.decode(self._charset)
        except UnicodeDecodeError:
            return content.decode("latin-1")


def _malformed(detail: str) -> HTTPException:
    return HTTPException(status_code=400, detail=detail)


def _codec(charset: bytes) -> str:
    try:
        return codecs.lookup(charset.decode("latin-1")).name
    except LookupError:
        return "latin-1"
