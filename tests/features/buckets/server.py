"""An S3 server for tests: an in-memory imitation by `moto`, or the server that the environment names.

LETHE_TEST_S3_ENDPOINT, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, runs the same tests against a real server."""

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.config
import pytest

from tests.ports import free_port

REGION = "us-east-1"


class Server:
    """Object store for tests, with its environment variables and buckets."""

    def __init__(self, endpoint: str, access_key: str, secret_key: str) -> None:
        self.environment = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_ALLOW_HTTP": "true",
        }
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=access_key,
            aws_secret_access_key=secret_key,
            config=botocore.config.Config(s3={"addressing_style": "path"}),
        )

    def new_bucket(self, *, versioning: str | None = None, object_lock: bool = False) -> str:
        """Create an empty bucket and return its name."""
        name = f"lethe-{secrets.token_hex(6)}"
        self.client.create_bucket(Bucket=name, **({"ObjectLockEnabledForBucket": True} if object_lock else {}))
        if versioning:
            self.client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": versioning})
        return name

    def contents(self, bucket: str) -> dict[str, bytes]:
        """Return everything in the bucket, bypassing the product."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key: self.client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def write(self, bucket: str, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=bucket, Key=key, Body=content)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    """Start the server, or use the one that the environment names. A server started here ends with this process."""
    if endpoint := os.environ.get("LETHE_TEST_S3_ENDPOINT"):
        yield Server(endpoint, os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
        return
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=_die_with_the_parent,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait_for(endpoint, process)
        yield Server(endpoint, "test", "test")
    finally:
        process.kill()
        process.wait()


def _wait_for(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
        except urllib.error.HTTPError as answered:
            answered.close()
            return
        except OSError:
            assert process.poll() is None, "moto's server ended: is moto installed, with flask and flask-cors?"
            assert time.monotonic() < ends, "moto's server does not answer"
            time.sleep(0.1)
        else:
            return


def _die_with_the_parent() -> None:
    if sys.platform == "linux":
        # The option 1 is PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture
def s3(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Set the product's environment variables for the server, and return the server."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server
