"""Buckets on an S3 server, as stores for rows and weights."""

import configparser
import datetime
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import obstore
from obstore import exceptions, store as stores
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.installations import OpenBucket
from app.vault.store import StoreKeepsVersions, StoreUnavailable, checked

if TYPE_CHECKING:
    from obstore.store import S3Config

_TIMEOUT = "60s"
_RETRIES = 5
_RETRY_TIMEOUT = datetime.timedelta(seconds=30)


class AwsSettings(BaseSettings):
    """Standard `AWS_...` variables that the S3 client does not read itself."""

    model_config = SettingsConfigDict(env_prefix="AWS_", extra="ignore")

    access_key_id: SecretStr | None = Field(None, description="ID of the access key, if set in the environment.")
    shared_credentials_file: Path = Field(Path("~/.aws/credentials"), description="File of profiles and their keys.")
    profile: str = Field("default", description="Name of the profile to use.")
    allow_http: bool = Field(False, description="Whether the endpoint may use http://.")


class S3Store:
    """Store for the objects under `s3://bucket/prefix/folder`, with one folder per group.

    A bucket with versioning, which object lock requires, retains overwritten and deleted objects. Such a bucket
    responds to writes with a version id, and is therefore refused at the first write.
    """

    def __init__(self, url: str, folder: str) -> None:
        location, aws = urlsplit(url), AwsSettings()
        self._bucket = location.netloc
        self._store = stores.S3Store(
            location.netloc,
            prefix="/".join(part for part in (location.path.strip("/"), folder) if part),
            client_options={"timeout": _TIMEOUT, "allow_http": aws.allow_http},
            retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
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
            return {item["path"].replace("/", ".", 1): item["last_modified"] for chunk in listed for item in chunk}

    def _put(self, name: str, content: bytes, mode: Literal["create", "overwrite"]) -> None:
        try:
            with self._translated(name):
                # A single request, because the parts of an interrupted multipart upload would stay in the bucket.
                response = obstore.put(self._store, _path(name), content, mode=mode, use_multipart=False)
        except FileNotFoundError as error:
            raise StoreUnavailable(f"There is no bucket {self._bucket}; make it, or change LETHE_STORE_URL.") from error
        if response["version"] is not None:
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
    """Return the profile's credentials; empty if the environment provides credentials or the profile is missing."""
    if aws.access_key_id is not None:
        return {}
    parsed = configparser.RawConfigParser()
    parsed.read(aws.shared_credentials_file.expanduser())
    if not parsed.has_section(aws.profile):
        return {}
    section = parsed[aws.profile]
    config: S3Config = {
        "access_key_id": section.get("aws_access_key_id", ""),
        "secret_access_key": section.get("aws_secret_access_key", ""),
    }
    if token := section.get("aws_session_token"):
        config["session_token"] = token
    return config


BUCKETS: tuple[OpenBucket, ...] = (S3Store,)
