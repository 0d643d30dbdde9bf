import datetime
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.vault.store import FolderStore, ObjectStore, S3Store, StoreKeepsVersions, StoreUnavailable
from tests.s3.server import Server

# --- every store -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 40_000])
def test_an_object_is_read_back(objects: ObjectStore, open_objects: Callable[[], ObjectStore], content: bytes) -> None:
    """Any process that opens the store reads an object back unchanged."""
    objects.check()
    objects.put("a.x", content)
    assert open_objects().get("a.x") == content


def test_put_replaces(objects: ObjectStore) -> None:
    """A name holds one object, the last one written."""
    objects.put("a.x", b"a longer one")
    objects.put("a.x", b"last")
    assert objects.get("a.x") == b"last"
    assert objects.names().keys() == {"a.x"}


def test_create_does_not_replace(objects: ObjectStore) -> None:
    """Creating an object never replaces an existing one."""
    objects.create("a.x", b"first")
    with pytest.raises(FileExistsError, match=r"a\.x"):
        objects.create("a.x", b"second")
    assert objects.get("a.x") == b"first"
    objects.delete("a.x")
    objects.create("a.x", b"third")
    assert objects.get("a.x") == b"third"


def test_one_of_many_creates(open_objects: Callable[[], ObjectStore]) -> None:
    """Of several concurrent creations exactly one succeeds, and its content is stored."""

    def create(number: int) -> bool:
        try:
            open_objects().create("a.x", b"%d" % number)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(create, range(8)))
    assert created.count(True) == 1
    assert open_objects().get("a.x") == b"%d" % created.index(True)


def test_a_missing_object(objects: ObjectStore) -> None:
    """Reading a missing object raises FileNotFoundError, and deleting it is a no-op."""
    objects.check()
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    objects.delete("a.x")
    assert objects.names() == {}


def test_deleted_is_gone(objects: ObjectStore) -> None:
    """A deleted object is neither read nor listed, and the others remain."""
    for name in ("a.x", "a.y", "ab.x"):
        objects.put(name, name.encode())
    objects.delete("a.x")
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    assert objects.names().keys() == {"a.y", "ab.x"}


def test_groups_are_listed_alone(objects: ObjectStore) -> None:
    """A group lists exactly the names that begin with it and a '.', with the times of their last write."""
    for name in ("a.x", "a.y.z", "ab.x", "a_b.x"):
        objects.put(name, b"")
    assert objects.names("a").keys() == {"a.x", "a.y.z"}
    assert objects.names("b") == {}
    now = datetime.datetime.now(datetime.UTC)
    assert all(abs(now - at) < datetime.timedelta(minutes=1) for at in objects.names().values())


def test_more_than_one_page_is_listed(objects: ObjectStore) -> None:
    """A store lists more names than fit in one page of a bucket's listing."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: objects.put(f"a.{number}", b""), range(1001)))
    assert len(objects.names("a")) == len(objects.names()) == 1001


@pytest.mark.parametrize("name", ["", "a", ".a", "a.", "../a.x", "a/b.x", "a b.x", "ä.x", "a..x"])
def test_names_outside_the_portable_characters_are_refused(objects: ObjectStore, name: str) -> None:
    """A name is a group, a '.' and the rest, in characters that every file system and URL treats alike."""
    for call in (
        objects.get,
        objects.delete,
        lambda name: objects.put(name, b""),
        lambda name: objects.create(name, b""),
    ):
        with pytest.raises(ValueError, match="name"):
            call(name)


# --- a folder --------------------------------------------------------------------------------------------------------


def test_files_are_private(tmp_path: Path) -> None:
    """Only their owner can access folder and files, and no other file is left."""
    objects = FolderStore(tmp_path / "new")
    objects.put("a.x", b"1")
    objects.put("a.x", b"2")
    objects.create("a.y", b"3")
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"a.x", "a.y"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*")) if path.is_dir()} == {0o700}


@pytest.mark.parametrize("go", [lambda objects: objects.delete("a.x"), lambda objects: objects.put("a.x", b"new")])
def test_deleted_content_is_overwritten(tmp_path: Path, go: Callable[[FolderStore], None]) -> None:
    """Deleted and replaced content is zeroed on disk, as a hard link to the file shows."""
    objects = FolderStore(tmp_path / "objects")
    objects.put("a.x", b"someone")
    os.link(tmp_path / "objects" / "a.x", tmp_path / "link")
    go(objects)
    assert (tmp_path / "link").read_bytes() == bytes(7)


def test_a_partial_file_goes_with_its_object(tmp_path: Path) -> None:
    """A partial file left by a killed process is listed under its object's name only, and is deleted with it."""
    objects = FolderStore(tmp_path)
    objects.put("a.x", b"whole")
    (left,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    (left / "a.x.00ff").write_bytes(b"some")
    assert objects.names().keys() == {"a.x"}
    objects.delete("a.x")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    (left / "b.y.00ff").write_bytes(b"of an object that never was")
    assert objects.names().keys() == objects.names("b").keys() == {"b.y"}
    assert objects.names("a") == {}
    objects.delete("b.y")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# --- a bucket --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [{"versioning": "Enabled"}, {"object_lock": True}])
def test_a_bucket_that_keeps_versions_is_refused(s3: Server, kept: dict[str, object]) -> None:
    """With versioning or object lock the check and every write are refused, and the message says what to do."""
    objects = S3Store(f"s3://{s3.new_bucket(**kept)}", "weights")  # type: ignore[arg-type]
    for write in (objects.check, lambda: objects.put("a.x", b"1"), lambda: objects.create("a.y", b"1")):
        with pytest.raises(StoreKeepsVersions, match="switch versioning and object lock off"):
            write()


def test_versioning_switched_on_later_is_noticed(s3: Server, bucket: str) -> None:
    """A bucket on which versioning is enabled after the start is refused at the next write."""
    objects = S3Store(f"s3://{bucket}", "weights")
    objects.check()
    objects.put("a.x", b"1")
    s3.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.raises(StoreKeepsVersions):
        objects.put("a.x", b"2")


def test_a_check_leaves_nothing(s3: Server, bucket: str) -> None:
    """The check deletes its probe."""
    S3Store(f"s3://{bucket}", "weights").check()
    assert s3.contents(bucket) == {}


def test_where_objects_are(s3: Server, bucket: str) -> None:
    """Objects lie below prefix, folder and group, where an operator finds them; other prefixes are not seen."""
    S3Store(f"s3://{bucket}/one/two/", "weights").put("ver_1.sealed", b"1")
    S3Store(f"s3://{bucket}", "weights").put("ver_2.sealed", b"2")
    assert s3.contents(bucket) == {"one/two/weights/ver_1/sealed": b"1", "weights/ver_2/sealed": b"2"}
    assert S3Store(f"s3://{bucket}/one/two", "weights").names().keys() == {"ver_1.sealed"}


def test_an_upload_is_one_request(s3: Server, bucket: str) -> None:
    """Large objects are uploaded in one request too, so that no part can be left behind."""
    S3Store(f"s3://{bucket}", "weights").put("a.x", bytes(12_000_000))
    [found] = s3.client.list_objects_v2(Bucket=bucket)["Contents"]
    assert "-" not in found["ETag"]  # of an upload in parts it ends in their number


def test_a_missing_bucket(s3: Server) -> None:
    """The error for a missing bucket names the setting to change."""
    with pytest.raises(StoreUnavailable, match="LETHE_STORE_URL"):
        S3Store("s3://lethe-there-is-no-such-bucket", "weights").check()


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, s3: Server) -> None:
    """An unreachable store raises an `OSError` that names the setting to check and reveals no content."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")  # where nobody listens
    monkeypatch.setattr("app.vault.store._RETRIES", 0)
    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL") as raised:
        S3Store("s3://bucket", "weights").put("a.x", b"someone")
    assert "someone" not in str(raised.value)


def test_credentials_come_from_the_shared_file_too(
    s3: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a key in the environment, the profile of the shared credentials file is used."""
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
