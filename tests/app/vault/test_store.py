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
def test_what_was_put_is_got(objects: ObjectStore, open_objects: Callable[[], ObjectStore], content: bytes) -> None:
    """An object comes back as it was, from whoever opens the store."""
    objects.check()
    objects.put("a.x", content)
    assert open_objects().get("a.x") == content


def test_put_replaces(objects: ObjectStore) -> None:
    """Of a name there is one object, the last."""
    objects.put("a.x", b"a longer one")
    objects.put("a.x", b"last")
    assert objects.get("a.x") == b"last"
    assert objects.names().keys() == {"a.x"}


def test_create_does_not_replace(objects: ObjectStore) -> None:
    """What is there stays, until it is deleted."""
    objects.create("a.x", b"first")
    with pytest.raises(FileExistsError, match=r"a\.x"):
        objects.create("a.x", b"second")
    assert objects.get("a.x") == b"first"
    objects.delete("a.x")
    objects.create("a.x", b"third")
    assert objects.get("a.x") == b"third"


def test_one_of_many_creates(open_objects: Callable[[], ObjectStore]) -> None:
    """Of several who create at once one succeeds, and its content is there."""

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


def test_what_is_not_there(objects: ObjectStore) -> None:
    """Getting it is an error that has a name, deleting it does nothing."""
    objects.check()
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    objects.delete("a.x")
    assert objects.names() == {}


def test_deleted_is_gone(objects: ObjectStore) -> None:
    """A deleted object is not got and not listed, the others stay."""
    for name in ("a.x", "a.y", "ab.x"):
        objects.put(name, name.encode())
    objects.delete("a.x")
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    assert objects.names().keys() == {"a.y", "ab.x"}


def test_groups_are_listed_alone(objects: ObjectStore) -> None:
    """A group has the names that begin with it and a '.', and no others; times are those of the last write."""
    for name in ("a.x", "a.y.z", "ab.x", "a_b.x"):
        objects.put(name, b"")
    assert objects.names("a").keys() == {"a.x", "a.y.z"}
    assert objects.names("b") == {}
    now = datetime.datetime.now(datetime.UTC)
    assert all(abs(now - at) < datetime.timedelta(minutes=1) for at in objects.names().values())


def test_more_than_one_page_is_listed(objects: ObjectStore) -> None:
    """A store lists more names than a bucket tells at once."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: objects.put(f"a.{number}", b""), range(1001)))
    assert len(objects.names("a")) == len(objects.names()) == 1001


@pytest.mark.parametrize("name", ["", "a", ".a", "a.", "../a.x", "a/b.x", "a b.x", "ä.x", "a..x"])
def test_names_that_not_every_store_takes_are_refused(objects: ObjectStore, name: str) -> None:
    """A name is a group, a '.' and the rest, of letters that mean the same to every file system and every URL."""
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
    """Folder and files are closed to everybody but their owner, and no other file is left."""
    objects = FolderStore(tmp_path / "new")
    objects.put("a.x", b"1")
    objects.put("a.x", b"2")
    objects.create("a.y", b"3")
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"a.x", "a.y"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.rglob("*")) if path.is_dir()} == {0o700}


@pytest.mark.parametrize("go", [lambda objects: objects.delete("a.x"), lambda objects: objects.put("a.x", b"new")])
def test_what_goes_is_overwritten(tmp_path: Path, go: Callable[[FolderStore], None]) -> None:
    """What is deleted or replaced is zero on disk: another name of the same file shows it."""
    objects = FolderStore(tmp_path / "objects")
    objects.put("a.x", b"someone")
    os.link(tmp_path / "objects" / "a.x", tmp_path / "link")
    go(objects)
    assert (tmp_path / "link").read_bytes() == bytes(7)


def test_what_a_crash_left_goes_too(tmp_path: Path) -> None:
    """A file that a killed process had begun to write is listed under its object's name alone, and goes with it."""
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
    """Where versioning or object lock is on, the check and every write are refused, and the text says what to do."""
    objects = S3Store(f"s3://{s3.new_bucket(**kept)}", "weights")  # type: ignore[arg-type]
    for write in (objects.check, lambda: objects.put("a.x", b"1"), lambda: objects.create("a.y", b"1")):
        with pytest.raises(StoreKeepsVersions, match="switch versioning and object lock off"):
            write()


def test_versioning_switched_on_later_is_noticed(s3: Server, bucket: str) -> None:
    """A bucket that was fit when the service started is refused at the first write after it no longer is."""
    objects = S3Store(f"s3://{bucket}", "weights")
    objects.check()
    objects.put("a.x", b"1")
    s3.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.raises(StoreKeepsVersions):
        objects.put("a.x", b"2")


def test_a_check_leaves_nothing(s3: Server, bucket: str) -> None:
    """The probe is gone when the check is over."""
    S3Store(f"s3://{bucket}", "weights").check()
    assert s3.contents(bucket) == {}


def test_where_objects_are(s3: Server, bucket: str) -> None:
    """Below the prefix, the folder and the group: an operator finds them, and other prefixes are not seen."""
    S3Store(f"s3://{bucket}/one/two/", "weights").put("ver_1.sealed", b"1")
    S3Store(f"s3://{bucket}", "weights").put("ver_2.sealed", b"2")
    assert s3.contents(bucket) == {"one/two/weights/ver_1/sealed": b"1", "weights/ver_2/sealed": b"2"}
    assert S3Store(f"s3://{bucket}/one/two", "weights").names().keys() == {"ver_1.sealed"}


def test_an_upload_is_one_request(s3: Server, bucket: str) -> None:
    """Large objects too are written whole: no part of one can be left behind."""
    S3Store(f"s3://{bucket}", "weights").put("a.x", bytes(12_000_000))
    [found] = s3.client.list_objects_v2(Bucket=bucket)["Contents"]
    assert "-" not in found["ETag"]  # of an upload in parts it ends in their number


def test_a_bucket_that_is_not_there(s3: Server) -> None:
    """The error names the setting to change."""
    with pytest.raises(StoreUnavailable, match="LETHE_STORE_URL"):
        S3Store("s3://lethe-there-is-no-such-bucket", "weights").check()


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, s3: Server) -> None:
    """A store that is away is an `OSError` that says where to look, and tells nothing of the content."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")  # where nobody listens
    monkeypatch.setattr("app.vault.store._RETRIES", 0)
    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL") as raised:
        S3Store("s3://bucket", "weights").put("a.x", b"someone")
    assert "someone" not in str(raised.value)


def test_credentials_come_from_the_shared_file_too(
    s3: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment has no key, the profile of the shared credentials file is used."""
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
