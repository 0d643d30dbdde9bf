"""The gateway that commands talk to: by default the one that the server's settings describe on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, Field

from lethe import Client
from lethe.contract.problems import Unauthenticated

Url = Annotated[str | None, typer.Option(envvar="LETHE_URL", help="Gateway; default: LETHE_HOST and LETHE_PORT.")]
Key = Annotated[str | None, typer.Option(envvar="LETHE_API_KEY", help="API key; default: the admin key file.")]

RETRY_SECONDS = 3.0
"""Somebody at a terminal would rather hear that the gateway is not there."""


class _Installed(BaseModel):
    """Settings of a server on this machine, with the server's defaults."""

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    data_dir: Path = Path(".lethe")
    admin_key_file: Path | None = None

    @classmethod
    def here(cls) -> "_Installed":
        """As the environment says."""
        said = {name.lower(): value for name, value in os.environ.items()}
        return cls.model_validate({name: said[f"lethe_{name}"] for name in cls.model_fields if f"lethe_{name}" in said})


def connect(url: str | None, key: str | None, *, retry_seconds: float = RETRY_SECONDS) -> Client:
    """A client of the gateway that is named, or of the one on this machine. Raises `Unauthenticated`."""
    installed = _Installed.here()
    if key is None:
        path = installed.admin_key_file or installed.data_dir / "keys" / "admin.key"
        if not path.exists():
            raise Unauthenticated(f"no API key; set LETHE_API_KEY (there is no {path})")
        key = path.read_text().strip()
    return Client(url or f"http://{installed.host}:{installed.port}", key, retry_seconds=retry_seconds)
