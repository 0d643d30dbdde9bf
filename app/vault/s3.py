"""Objects in a bucket of Amazon S3, or of what speaks its protocol.

Endpoint, region and credentials are those of the usual AWS variables (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID,
...), of the machine's role, or of the shared credentials file. `http://` endpoints need AWS_ALLOW_HTTP=true.
"""

import configparser
import datetime
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore import store as stores

from app.config import AwsSettings
from app.vault.store import StoreKeepsVersions, StoreUnavailable, checked

if TYPE_CHECKING:
    from obstore.store import S3Config

_TIMEOUT = "60s"
_RETRIES = 5
_GIVES_UP_AFTER = datetime.timedelta(seconds=30)


class S3Store:
    """The objects of `s3://bucket/prefix`, below one more `folder`, where each group has a folder of its own.

    Whatever is overwritten or deleted in a bucket with versioning, or with object lock, which needs it, stays there:
    such a bucket answers every write with the version that it made, and is refused at the first.
    """

    def __init__(self, url: str, folder: str) -> None:
        where, aws = urlsplit(url), AwsSettings()
        self._bucket = where.netloc
        self._store = stores.S3Store(
            where.netloc,
            prefix="/".join(part for part in (where.path.strip("/"), folder) if part),
            client_options={"timeout": _TIMEOUT, "allow_http": aws.allow_http},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _GIVES_UP_AFTER},
            config=_from_credentials_file(aws),
        )

    def check(self) -> None:
        probe = f"probe.{secrets.token_hex(8)}"
        self.create(probe, b"")
        self.delete(probe)

    def put(self, name: str, content: bytes) -> None:
        self._put(name, content, "overwrite")

    def create(self, name: str, content: bytes) -> None:
        self._put(name, content, "create")

    def get(self, name: str) -> bytes:
        with self._translated(name):
            return bytes(obstore.get(self._store, _path(name)).bytes())

    def delete(self, name: str) -> None:
        with self._translated(name):
            obstore.delete(self._store, _path(name))

    def names(self, group: str | None = None) -> dict[str, datetime.datetime]:
        with self._translated(group or "at all"):
            listed = obstore.list(self._store, group, chunk_size=1000)
            return {found["path"].replace("/", ".", 1): found["last_modified"] for chunk in listed for found in chunk}

    def _put(self, name: str, content: bytes, mode: Literal["create", "overwrite"]) -> None:
        try:
            with self._translated(name):  # one request: parts of an upload never completed would stay in the bucket
                written = obstore.put(self._store, _path(name), content, mode=mode, use_multipart=False)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"There is no bucket {self._bucket}; make it, or change LETHE_STORE_URL.") from error
        if written["version"] is not None:
            raise StoreKeepsVersions(
                f"The bucket {self._bucket} keeps old versions of its objects; switch versioning and object lock off, "
                "or make another bucket, and let LETHE_STORE_URL name that one."
            )

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"There is no object {name} in the bucket {self._bucket}.") from error
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise FileExistsError(f"There is an object {name} in the bucket {self._bucket} already.") from error
        except exceptions.BaseError as error:
            raise StoreUnavailable(
                f"The bucket {self._bucket} did not do what it was asked ({type(error).__name__}); "
                "see LETHE_STORE_URL, AWS_ENDPOINT_URL and the credentials."
            ) from error


def _path(name: str) -> str:
    return checked(name).replace(".", "/", 1)


def _from_credentials_file(aws: AwsSettings) -> "S3Config":
    """The profile's keys, where the environment names none."""
    if aws.access_key_id is not None:
        return {}
    parsed = configparser.RawConfigParser()
    parsed.read(aws.shared_credentials_file.expanduser())
    if not parsed.has_section(aws.profile):
        return {}
    section = parsed[aws.profile]
    found: S3Config = {
        "access_key_id": section.get("aws_access_key_id", ""),
        "secret_access_key": section.get("aws_secret_access_key", ""),
    }
    if token := section.get("aws_session_token"):
        found["session_token"] = token
    return found
