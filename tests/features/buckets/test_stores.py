"""Buckets: refusals, their contents, and the connection to the server."""

from pathlib import Path

import pytest

from app import installations
from app.config import Settings
from app.features.buckets.stores import S3Store
from app.vault.store import StoreKeepsVersions, StoreUnavailable
from lethe import sockets
from lethe.contract.problems import InputInvalid
from tests.features.buckets.server import Server


@pytest.mark.slow
@pytest.mark.parametrize("kept", [{"versioning": "Enabled"}, {"object_lock": True}])
def test_a_versioned_bucket_is_refused(s3: Server, kept: dict[str, object]) -> None:
    """A bucket with versioning or object lock fails the check and every write. The message names the feature to switch
    off."""
    objects = S3Store(f"s3://{s3.new_bucket(**kept)}", "weights")  # type: ignore[arg-type]
    for write in (objects.check, lambda: objects.put("a.x", b"1"), lambda: objects.create("a.y", b"1")):
        with pytest.raises(StoreKeepsVersions, match="switch versioning and object lock off"):
            write()


def test_versioning_enabled_later_is_detected(s3: Server, bucket: str) -> None:
    """If versioning is enabled on a bucket after startup, the next write is refused."""
    objects = S3Store(f"s3://{bucket}", "weights")
    objects.check()
    objects.put("a.x", b"1")
    s3.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.raises(StoreKeepsVersions):
        objects.put("a.x", b"2")


def test_a_check_deletes_its_probe(s3: Server, bucket: str) -> None:
    """The bucket check deletes the object that it writes as a probe."""
    S3Store(f"s3://{bucket}", "weights").check()
    assert s3.contents(bucket) == {}


def test_objects_are_stored_below_their_prefix(s3: Server, bucket: str) -> None:
    """Objects are stored under a path made of the prefix, the folder and the group, where an operator can find them.
    Objects under other prefixes are ignored."""
    S3Store(f"s3://{bucket}/one/two/", "weights").put("ver_1.sealed", b"1")
    S3Store(f"s3://{bucket}", "weights").put("ver_2.sealed", b"2")
    assert s3.contents(bucket) == {"one/two/weights/ver_1/sealed": b"1", "weights/ver_2/sealed": b"2"}
    assert S3Store(f"s3://{bucket}/one/two", "weights").names().keys() == {"ver_1.sealed"}


def test_an_upload_is_one_request(s3: Server, bucket: str) -> None:
    """Even large objects are uploaded in one request, so no unfinished part can remain in the bucket."""
    S3Store(f"s3://{bucket}", "weights").put("a.x", bytes(12_000_000))
    [found] = s3.client.list_objects_v2(Bucket=bucket)["Contents"]
    # The ETag of a multipart upload ends in a hyphen and the number of parts.
    assert "-" not in found["ETag"]


def test_a_missing_bucket_names_the_setting(s3: Server) -> None:
    """The error for a missing bucket names the setting to change."""
    with pytest.raises(StoreUnavailable, match="LETHE_STORE_URL"):
        S3Store("s3://lethe-there-is-no-such-bucket", "weights").check()


def test_an_unreachable_store_names_the_setting(monkeypatch: pytest.MonkeyPatch, s3: Server) -> None:
    """If the store cannot be reached, an `OSError` names the setting to check and reveals no content."""
    # No server listens on this port.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    monkeypatch.setattr("app.features.buckets.stores._RETRIES", 0)
    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL") as raised:
        S3Store("s3://bucket", "weights").put("a.x", b"someone")
    assert "someone" not in str(raised.value)


def test_shared_credentials_are_used(s3: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile in the shared credentials file is used if the environment contains no key."""
    file, environment = tmp_path / "credentials", s3.environment
    file.write_text(
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[lethe]\n"
        f"aws_access_key_id = {environment['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {environment['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "lethe")
    S3Store(f"s3://{bucket}", "weights").check()


def test_a_bucket_without_its_feature_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a bucket is configured but its optional feature is not installed, an error names the setting."""
    monkeypatch.setattr(sockets, "plugs", lambda *socket: ())
    with pytest.raises(InputInvalid, match="LETHE_STORE_URL"):
        installations.places(Settings(data_dir=tmp_path, store_url="s3://bucket"))
