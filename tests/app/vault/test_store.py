import datetime
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.vault.store import FolderStore, ObjectStore

# --- stores of every kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 40_000])
def test_an_object_is_read_back(objects: ObjectStore, open_objects: Callable[[], ObjectStore], content: bytes) -> None:
    """Any process that opens the store reads an object back unchanged."""
    objects.check()
    objects.put("a.x", content)
    assert open_objects().get("a.x") == content


def test_writing_to_a_name_replaces_its_object(objects: ObjectStore) -> None:
    """Writing to an existing name replaces the object, so that each name refers to only one object."""
    objects.put("a.x", b"a longer one")
    objects.put("a.x", b"last")
    assert objects.get("a.x") == b"last"
    assert objects.names().keys() == {"a.x"}


def test_creating_an_object_does_not_replace_one(objects: ObjectStore) -> None:
    """Creating an object never replaces an existing one."""
    objects.create("a.x", b"first")
    with pytest.raises(FileExistsError, match=r"a\.x"):
        objects.create("a.x", b"second")
    assert objects.get("a.x") == b"first"
    objects.delete("a.x")
    objects.create("a.x", b"third")
    assert objects.get("a.x") == b"third"


def test_only_one_concurrent_creation_succeeds(open_objects: Callable[[], ObjectStore]) -> None:
    """Exactly one of several concurrent creations succeeds, and its content is the one that is stored."""

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


def test_a_missing_object_raises(objects: ObjectStore) -> None:
    """Reading a missing object raises FileNotFoundError, and deleting it is a no-op."""
    objects.check()
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    objects.delete("a.x")
    assert objects.names() == {}


def test_a_deleted_object_is_gone(objects: ObjectStore) -> None:
    """A deleted object can be neither read nor listed, and the other objects remain."""
    for name in ("a.x", "a.y", "ab.x"):
        objects.put(name, name.encode())
    objects.delete("a.x")
    with pytest.raises(FileNotFoundError):
        objects.get("a.x")
    assert objects.names().keys() == {"a.y", "ab.x"}


def test_a_group_lists_only_its_names(objects: ObjectStore) -> None:
    """Listing a group returns exactly the names that begin with the group and a '.', along with the time at which each
    was last written."""
    for name in ("a.x", "a.y.z", "ab.x", "a_b.x"):
        objects.put(name, b"")
    assert objects.names("a").keys() == {"a.x", "a.y.z"}
    assert objects.names("b") == {}
    now = datetime.datetime.now(datetime.UTC)
    assert all(abs(now - at) < datetime.timedelta(minutes=1) for at in objects.names().values())


@pytest.mark.slow
def test_listings_of_several_pages_are_complete(objects: ObjectStore) -> None:
    """Listing a store returns all names, even if they do not fit in one page of a bucket's listing."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: objects.put(f"a.{number}", b""), range(1001)))
    assert len(objects.names("a")) == len(objects.names()) == 1001


@pytest.mark.parametrize("name", ["", "a", ".a", "a.", "../a.x", "a/b.x", "a b.x", "ä.x", "a..x"])
def test_names_outside_the_portable_characters_are_refused(objects: ObjectStore, name: str) -> None:
    """A name must consist of a group, a '.' and a remainder, using only characters that every file system and URL
    treats the same. Other names are refused."""
    for call in (
        objects.get,
        objects.delete,
        lambda name: objects.put(name, b""),
        lambda name: objects.create(name, b""),
    ):
        with pytest.raises(ValueError, match="name"):
            call(name)


# --- folder stores ---------------------------------------------------------------------------------------------------


def test_files_are_private(tmp_path: Path) -> None:
    """Only the owner can access the folder and its files, and no other files are left behind."""
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
    """Deleted and replaced content is overwritten with zeros on disk. The test reads the zeros through a hard link."""
    objects = FolderStore(tmp_path / "objects")
    objects.put("a.x", b"someone")
    os.link(tmp_path / "objects" / "a.x", tmp_path / "link")
    go(objects)
    assert (tmp_path / "link").read_bytes() == bytes(7)


def test_a_partial_file_is_deleted_with_its_object(tmp_path: Path) -> None:
    """A partial file left by a killed process is listed only under its object's name and is deleted together with that
    object."""
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
