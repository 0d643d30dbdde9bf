import hashlib
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost, Keys, KeyUnreadable, read_or_create


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys").create()


def test_keys_are_created_once(keys: Keys, tmp_path: Path) -> None:
    """Every process that opens a folder of keys gets the same keys, and no two folders share keys."""

    def used(opened: Keys) -> tuple[object, ...]:
        return opened.subject_ref("ten_1", "p1"), opened.signing_key.as_dict(private=True)

    assert used(keys) == used(Keys(tmp_path / "keys"))
    assert not set(map(str, used(keys))) & set(map(str, used(Keys(tmp_path / "other").create())))


def test_key_files_are_private(keys: Keys, tmp_path: Path) -> None:
    """Key files have mode 0600 and are the only files in a folder of mode 0700."""
    _ = keys.subject_ref("ten_1", "p1"), keys.signing_key, keys.webhook_secret("ten_1", 1)
    folder = tmp_path / "keys"
    assert {path.name for path in folder.iterdir()} == {"subject.key", "webhook.key", "signing.jwk"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["subject.key", "webhook.key", "signing.jwk"])
@pytest.mark.parametrize("content", [None, "", "00", "zz" * 32, "[]", '{"kty": "OKP"}'])
def test_a_missing_key_is_not_created(keys: Keys, tmp_path: Path, name: str, content: str | None) -> None:
    """A missing or malformed key is reported by name, and no new key is created in its place."""
    path = tmp_path / "keys" / name
    path.unlink() if content is None else path.write_text(content)
    opened = Keys(tmp_path / "keys")
    with pytest.raises(KeyUnreadable, match=name):
        _ = opened.subject_ref("ten_1", "p1"), opened.signing_key, opened.webhook_secret("ten_1", 1)
    assert path.exists() is (content is not None)


def test_check_values_differ_by_key_and_installation(keys: Keys, tmp_path: Path) -> None:
    """A key has one check value per installation, whichever process opens it; no two keys or installations
    share a check value."""
    names = list(keys.paths())
    other = Keys(tmp_path / "other").create()
    values = [one.check_value(name, at) for one in (keys, other) for name in names for at in ("ins_1", "ins_2")]
    assert len(set(values)) == len(values)
    assert [keys.fresh().check_value(name, "ins_1") for name in names] == [keys.check_value(n, "ins_1") for n in names]


def test_a_reference_is_a_keyed_hash(keys: Keys, tmp_path: Path) -> None:
    """A person's reference is an HMAC of the tenant and the hash of the person's id, so that ids cannot be guessed
    without the key."""
    reference = keys.subject_ref("ten_1", "jane")
    key = bytes.fromhex((tmp_path / "keys" / "subject.key").read_text())
    sha256 = hashlib.sha256(b"jane").digest()
    message = b"".join(len(part).to_bytes(8, "big") + part for part in (b"subject", b"ten_1", sha256))
    assert reference == "sub_" + hmac.new(key, message, hashlib.sha256).hexdigest()[:40]
    assert keys.subject_ref_of_hash("ten_1", sha256) == reference != keys.subject_ref("ten_2", "jane")
    assert len(key) == 32
    assert keys.subject_refs("ten_1", iter(["jane", "jöe"])) == [
        keys.subject_ref("ten_1", who) for who in ("jane", "jöe")
    ]


@given(one=st.lists(st.binary(max_size=4), max_size=4), other=st.lists(st.binary(max_size=4), max_size=4))
def test_fingerprints_separate_parts(set_up_once: Path, one: list[bytes], other: list[bytes]) -> None:
    """Two lists of parts have the same fingerprint only if they are equal, including the boundaries between the
    parts."""
    keys = Keys(set_up_once / "keys")
    assert (keys.fingerprint(*one) == keys.fingerprint(*other)) == (one == other)


def test_processes_that_race_get_one_key(tmp_path: Path) -> None:
    """Processes that create a key at the same time all read the same key and leave no temporary file."""
    path = tmp_path / "keys" / "a.key"
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: read_or_create(path, lambda: f"key {number}"), range(32)))
    assert len(set(made)) == 1
    assert [file.name for file in path.parent.iterdir()] == ["a.key"]


def test_a_failed_creation_leaves_no_key(tmp_path: Path) -> None:
    """If the creation of a key fails, no file is left that could be mistaken for a key."""

    def fail() -> str:
        raise RuntimeError

    path = tmp_path / "keys" / "a.key"
    with pytest.raises(RuntimeError):
        read_or_create(path, fail)
    assert not path.parent.exists()
    assert read_or_create(path, lambda: "key") == "key"


# --- the key-encryption key ------------------------------------------------------------------------------------------

DATA_KEY = bytes(range(32))


@pytest.fixture
def key_encryption(tmp_path: Path) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path / "keys" / "kek")
    made.create()
    return made


def test_a_wrapped_key_is_unwrapped(key_encryption: KeyEncryptionFile, tmp_path: Path) -> None:
    """The holder of the key file can unwrap a key; the wrapped form hides the key and is different each time."""
    wrapped = [key_encryption.wrap(DATA_KEY, "ver_1") for _ in range(2)]
    assert [KeyEncryptionFile(tmp_path / "keys" / "kek").unwrap(one, "ver_1") for one in wrapped] == [DATA_KEY] * 2
    assert wrapped[0] != wrapped[1]
    assert not any(DATA_KEY in one for one in wrapped)
    assert (tmp_path / "keys" / "kek").stat().st_mode & 0o777 == 0o600


def test_creating_the_key_encryption_key_again_is_a_no_op(key_encryption: KeyEncryptionFile, tmp_path: Path) -> None:
    """The key-encryption key is created only once, even during a rotation."""
    wrapped = key_encryption.wrap(DATA_KEY, "ver_1")
    key_encryption.create()
    assert key_encryption.unwrap(wrapped, "ver_1") == DATA_KEY
    key_encryption.begin_rotation()
    (tmp_path / "keys" / "kek").unlink()
    key_encryption.create()
    assert not (tmp_path / "keys" / "kek").exists()


def test_a_foreign_wrapped_key_is_refused(key_encryption: KeyEncryptionFile) -> None:
    """A wrapped key is refused if it was wrapped for another purpose, modified, truncated or zeroed."""
    wrapped = key_encryption.wrap(DATA_KEY, "ver_1")
    changed = wrapped[:-1] + bytes([wrapped[-1] ^ 1])
    for one, context in ((wrapped, "ver_2"), (changed, "ver_1"), (wrapped[:-1], "ver_1"), (b"", "ver_1")):
        with pytest.raises(ValueError, match="key"):
            key_encryption.unwrap(one, context)
    with pytest.raises(ValueError, match="key"):
        key_encryption.unwrap(bytes(len(wrapped)), "ver_1")


@pytest.mark.parametrize("content", ["", "\0" * 64, "00", "zz" * 32, "no key"])
def test_a_file_without_a_key_is_refused(key_encryption: KeyEncryptionFile, tmp_path: Path, content: str) -> None:
    """A key file that does not contain 64 hex digits is refused with a specific error."""
    (tmp_path / "keys" / "kek").write_text(content)
    with pytest.raises(KeyEncryptionKeyLost, match="kek"):
        key_encryption.wrap(DATA_KEY, "ver_1")


def test_a_rotation_changes_the_key(key_encryption: KeyEncryptionFile, tmp_path: Path) -> None:
    """During a rotation, keys can be unwrapped with either key but are wrapped only with the new one. Afterwards the
    old key is zeroed, and whatever was wrapped with it can no longer be unwrapped."""
    file, link = tmp_path / "keys" / "kek", tmp_path / "link"
    os.link(file, link)
    old = key_encryption.wrap(DATA_KEY, "ver_1")
    for _ in range(2):
        key_encryption.begin_rotation()
    new = key_encryption.wrap(DATA_KEY, "ver_1")
    assert new[:16] != old[:16]
    assert key_encryption.unwrap(old, "ver_1") == key_encryption.unwrap(new, "ver_1") == DATA_KEY
    for _ in range(2):
        key_encryption.end_rotation()
        assert key_encryption.unwrap(new, "ver_1") == DATA_KEY
    with pytest.raises(KeyEncryptionKeyLost, match="another"):
        key_encryption.unwrap(old, "ver_1")
    assert link.read_bytes() == bytes(64)
    assert [path.name for path in file.parent.iterdir()] == ["kek"]


def test_a_new_key_not_yet_renamed_is_used(key_encryption: KeyEncryptionFile, tmp_path: Path) -> None:
    """If a crash leaves the old key zeroed and the new key not yet renamed, the new key is used."""
    key_encryption.begin_rotation()
    new = key_encryption.wrap(DATA_KEY, "ver_1")
    (tmp_path / "keys" / "kek").write_bytes(bytes(64))
    assert key_encryption.unwrap(new, "ver_1") == DATA_KEY
    key_encryption.begin_rotation()
    key_encryption.end_rotation()
    assert key_encryption.unwrap(new, "ver_1") == DATA_KEY
