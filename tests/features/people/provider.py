"""A real identity provider in its own process (oidc-provider-mock), and a user's browser there."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An identity provider; `issuer` is its name for itself."""

    issuer: str

    def returns(self, address: str, subject: str) -> str:
        """Log in at the provider as `subject`, and return the path and query to which the browser is redirected."""
        answer = httpx.post(address, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        return re.sub(r"^https?://[^/]+", "", answer.headers["location"])


@contextmanager
def running(*people: dict[str, Any]) -> Iterator[Provider]:
    """Start a provider that knows these people, each given by their claims."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"]
    words += [word for claims in people for word in ("--user-claims", json.dumps(claims))]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    issuer = f"http://localhost:{port}"
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                httpx.get(f"{issuer}/.well-known/openid-configuration").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None
                time.sleep(0.1)
        yield Provider(issuer=issuer)
    finally:
        process.terminate()
        process.wait(30)
