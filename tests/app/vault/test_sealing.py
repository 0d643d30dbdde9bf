import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost
from app.vault.sealing import SealedStore
from app.vault.store import ObjectStore

CONTENT = b"what is left of somebody" * 9


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "installation" / "sealed"


@pytest.fixture
def sealed(objects: ObjectStore, keys: Path, key_encryption: KeyEncryptionFile) -> SealedStore:
    made = SealedStore(objects, keys=keys, key_encryption=key_encryption)
    made.put("ds_1.a", CONTENT)
    return made


def rotate(key_encryption: KeyEncryptionFile, sealed: SealedStore) -> None:
    key_encryption.begin_rotation()
    sealed.rewrap()
    key_encryption.end_rotation()


def test_sealed_objects_round_trip(
    sealed: SealedStore, open_objects: Callable[[], ObjectStore], keys: Path, tmp_path: Path
) -> None:
    """A process with the store, the keys and the key-encryption key can open a sealed object."""
    other = SealedStore(open_objects(), keys=keys, key_encryption=KeyEncryptionFile(tmp_path / "installation" / "kek"))
    assert other.get("ds_1.a") == sealed.get("ds_1.a") == CONTENT
    assert not other.empty()


def test_stored_objects_are_encrypted(sealed: SealedStore, objects: ObjectStore, keys: Path) -> None:
    """The store contains only ciphertext, each object has its own key, and the keys are private files."""
    sealed.put("ds_1.b", CONTENT)
    stored = [objects.get(name) for name in objects.names()]
    assert len(set(stored)) == 2
    assert all(CONTENT[:8] not in one and len(one) == len(CONTENT) + 28 for one in stored)
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    assert keys.stat().st_mode & 0o777 == 0o700


def test_a_destroyed_object_does_not_open(sealed: SealedStore, objects: ObjectStore) -> None:
    """A destroyed object cannot be opened, even if a copy of it is put back."""
    copies = {name: objects.get(name) for name in objects.names()}
    sealed.destroy("ds_1.a")
    assert objects.names() == {}
    for name, copy in copies.items():
        objects.put(name, copy)
    with pytest.raises(FileNotFoundError):
        sealed.get("ds_1.a")


def test_a_rotation_voids_copies_of_destroyed_keys(
    sealed: SealedStore, objects: ObjectStore, keys: Path, key_encryption: KeyEncryptionFile, tmp_path: Path
) -> None:
    """After a rotation, an object destroyed before the rotation cannot be opened, even with copies of the object and
    its key."""
    copies = {name: objects.get(name) for name in objects.names()}
    shutil.copytree(keys, tmp_path / "backup")
    sealed.destroy("ds_1.a")
    rotate(key_encryption, sealed)
    for name, copy in copies.items():
        objects.put(name, copy)
    shutil.copytree(tmp_path / "backup", keys, dirs_exist_ok=True)
    with pytest.raises(KeyEncryptionKeyLost):
        sealed.get("ds_1.a")


def test_keys_are_destroyed_before_objects(sealed: SealedStore, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store is unavailable, destroying an object raises the store's error, but the object's keys are still
    destroyed."""
    sealed.put("ds_1.b", CONTENT)

    def away(*_: object) -> None:
        raise OSError("away")

    for name in ("delete", "names"):
        monkeypatch.setattr(sealed._objects, name, away)
    with pytest.raises(OSError, match="away"):
        sealed.destroy("ds_1.a")
    with pytest.raises(OSError, match="away"):
        sealed.destroy_group("ds_1")
    assert list(keys.iterdir()) == []


def test_keys_are_zeroed_before_removal(sealed: SealedStore, keys: Path, tmp_path: Path) -> None:
    """A key file is overwritten before it is removed. The test reads the overwritten content through a hard link."""
    os.link(keys / "ds_1.a.key", tmp_path / "link")
    sealed.destroy("ds_1.a")
    content = (tmp_path / "link").read_bytes()
    assert content == bytes(len(content)) != b""


def test_sealing_again_replaces_the_object(sealed: SealedStore, objects: ObjectStore) -> None:
    """Sealing under an existing name replaces the object, and the previous object can no longer be opened."""
    [name] = objects.names()
    before = objects.get(name)
    sealed.put("ds_1.a", b"other")
    assert sealed.get("ds_1.a") == b"other"
    objects.put(name, before)
    with pytest.raises(ValueError, match="damaged"):
        sealed.get("ds_1.a")


def test_a_group_is_destroyed_except_for_named_objects(sealed: SealedStore, objects: ObjectStore, keys: Path) -> None:
    """Destroying a group removes all its objects except the named ones, including objects that a crash left incomplete.
    Other groups are kept."""
    for name in ("ds_1.b", "ds_1.c", "ds_1.d", "ds_2.a"):
        sealed.put(name, CONTENT)
    (keys / "ds_1.c.key").unlink()
    objects.delete("ds_1.d.sealed")
    assert sealed.names("ds_1").keys() == {"ds_1.a", "ds_1.b", "ds_1.c", "ds_1.d"}
    for _ in range(2):
        sealed.destroy_group("ds_1", but={"ds_1.b"})
        assert sealed.names().keys() == {"ds_1.b", "ds_2.a"}
    assert sealed.get("ds_1.b") == sealed.get("ds_2.a") == CONTENT


@pytest.mark.parametrize("position", [0, 20, -1])
def test_damage_is_detected(sealed: SealedStore, objects: ObjectStore, position: int) -> None:
    """An object cannot be opened if any bit of it was flipped."""
    content = bytearray(objects.get("ds_1.a.sealed"))
    content[position] ^= 1
    objects.put("ds_1.a.sealed", bytes(content))
    with pytest.raises(ValueError, match="damaged"):
        sealed.get("ds_1.a")


def test_an_incomplete_object_is_reported_as_damage(sealed: SealedStore, objects: ObjectStore, keys: Path) -> None:
    """An empty object file and an empty key file are both reported as damage."""
    objects.put("ds_1.a.sealed", b"")
    with pytest.raises(ValueError, match="Nonce"):
        sealed.get("ds_1.a")
    (keys / "ds_1.a.key").write_bytes(b"")
    with pytest.raises(ValueError, match="no wrapped key"):
        sealed.get("ds_1.a")


@pytest.mark.parametrize("position", [0, 20, -1])
def test_a_faulty_store_is_detected_on_writing(
    sealed: SealedStore, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, position: int
) -> None:
    """If a store saves bytes other than those it was given, writing raises an error."""
    create = objects.create

    def keep_something_else(name: str, content: bytes) -> None:
        changed = bytearray(content)
        changed[position] ^= 1
        create(name, bytes(changed))

    monkeypatch.setattr(objects, "create", keep_something_else)
    with pytest.raises(OSError, match="something else was read back"):
        sealed.put("ds_1.b", CONTENT)


def test_objects_cannot_be_swapped(sealed: SealedStore, objects: ObjectStore, keys: Path) -> None:
    """An object cannot be opened under another object's name, even if its key is also copied to that name."""
    sealed.put("ds_1.b", b"other")
    objects.put("ds_1.b.sealed", objects.get("ds_1.a.sealed"))
    with pytest.raises(ValueError, match="damaged"):
        sealed.get("ds_1.b")
    shutil.copy(keys / "ds_1.a.key", keys / "ds_1.b.key")
    with pytest.raises(ValueError, match="something else"):
        sealed.get("ds_1.b")


def test_a_rotation_keeps_every_object(sealed: SealedStore, keys: Path, key_encryption: KeyEncryptionFile) -> None:
    """Every object opens before, during and after a rotation of the key-encryption key, and every key is rewrapped."""
    sealed.put("ds_1.b", b"other")
    (keys / "ds_1.c.key").write_bytes(b"")  # truncated by a crash
    before = {path.name: path.read_bytes() for path in keys.glob("*.key")}
    key_encryption.begin_rotation()
    assert sealed.get("ds_1.a") == CONTENT
    sealed.put("ds_1.d", b"meanwhile")
    sealed.rewrap()
    assert sealed.get("ds_1.a") == CONTENT
    key_encryption.end_rotation()
    assert [sealed.get(f"ds_1.{name}") for name in "abd"] == [CONTENT, b"other", b"meanwhile"]
    after = {path.name: path.read_bytes() for path in keys.glob("*.key")}
    assert not {before[name] for name in ("ds_1.a.key", "ds_1.b.key")} & set(after.values())
    assert {path.name for path in keys.iterdir()} == set(after)


def test_a_rotation_allows_concurrent_use(sealed: SealedStore, key_encryption: KeyEncryptionFile) -> None:
    """Objects can be sealed, opened and destroyed while keys are rotated, and destroyed objects stay destroyed."""

    def traffic(number: int) -> None:
        name = f"ds_2.{number}"
        for _ in range(3):
            sealed.put(name, b"%d" % number)
            assert sealed.get(name) == b"%d" % number
            assert sealed.get("ds_1.a") == CONTENT
        if number % 2:
            sealed.destroy(name)

    with ThreadPoolExecutor(5) as threads:
        done = [threads.submit(traffic, number) for number in range(8)]
        for _ in range(5):
            rotate(key_encryption, sealed)
        for one in done:
            one.result()
    assert sealed.names("ds_2").keys() == {f"ds_2.{number}" for number in range(0, 8, 2)}
    assert all(sealed.get(name) for name in sealed.names())


def test_a_reader_retries_a_key_that_is_being_replaced(
    sealed: SealedStore, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that finds zeros while a key is being rewrapped reads the key again and reports no damage. A key file
    that stays zero is reported as damaged."""
    read_bytes, reads = Path.read_bytes, iter([True])

    def overwritten(path: Path) -> bytes:
        content = read_bytes(path)
        return bytes(len(content)) if next(reads, False) else content

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", overwritten)
        assert sealed.get("ds_1.a") == CONTENT
    [file] = keys.glob("ds_1.a*")
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(ValueError, match="no wrapped key"):
        sealed.get("ds_1.a")


def test_nothing_opens_without_the_key_encryption_key(
    sealed: SealedStore, key_encryption: KeyEncryptionFile, tmp_path: Path
) -> None:
    """Without the right key-encryption key, no object can be opened, and without its file, none can be sealed. Once the
    file is back, everything opens as before."""
    file = tmp_path / "installation" / "kek"
    content = file.read_text()
    file.unlink()
    for call in (lambda: sealed.get("ds_1.a"), lambda: sealed.put("ds_1.b", b"")):
        with pytest.raises(KeyEncryptionKeyLost, match="put it back"):
            call()
    file.write_text("00" * 32)
    with pytest.raises(KeyEncryptionKeyLost, match="another"):
        sealed.get("ds_1.a")
    file.write_text(content + "\n")
    assert sealed.get("ds_1.a") == CONTENT
