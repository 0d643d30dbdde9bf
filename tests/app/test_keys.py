import hashlib
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.keys import Keys, read_or_create


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")


def test_keys_are_made_at_first_use_and_stay(keys: Keys, tmp_path: Path) -> None:
    """A folder of keys gives the same keys to every process that opens it, and other keys than any other folder."""

    def used(opened: Keys) -> tuple[object, ...]:
        return opened.digest_key, opened.subject_ref("p1"), opened.signing_key.as_dict(private=True)

    assert used(keys) == used(Keys(tmp_path / "keys"))
    assert not set(map(str, used(keys))) & set(map(str, used(Keys(tmp_path / "other"))))


def test_nobody_else_can_read_them(keys: Keys, tmp_path: Path) -> None:
    """Key files are 0600 in a 0700 folder, and nothing else is left beside them."""
    _ = keys.digest_key, keys.subject_ref("p1"), keys.signing_key
    folder = tmp_path / "keys"
    assert {path.name for path in folder.iterdir()} == {"digest.key", "subject.key", "signing.jwk"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_reference_is_a_keyed_hash(keys: Keys, tmp_path: Path) -> None:
    """A person's reference is an HMAC of the id under the subject key, so that nobody can guess without that key."""
    reference = keys.subject_ref("jane")
    key = bytes.fromhex((tmp_path / "keys" / "subject.key").read_text())
    message = b"".join(len(part).to_bytes(8, "big") + part for part in (b"subject", b"jane"))
    assert reference == "sub_" + hmac.new(key, message, hashlib.sha256).hexdigest()[:40]
    assert len(key) == 32


@given(one=st.lists(st.binary(max_size=4), max_size=4), other=st.lists(st.binary(max_size=4), max_size=4))
def test_fingerprints_tell_parts_apart(set_up_once: Path, one: list[bytes], other: list[bytes]) -> None:
    """Only equal lists of parts have equal fingerprints: where one part ends and the next begins counts too."""
    keys = Keys(set_up_once / "keys")
    assert (keys.fingerprint(*one) == keys.fingerprint(*other)) == (one == other)


def test_a_file_has_the_fingerprint_of_its_content(keys: Keys, tmp_path: Path) -> None:
    """Files are told apart by what is in them, not by their name, however large they are."""
    content = os.urandom(3 * 2**20 + 5)
    for name, changed in (("a", content), ("b", content), ("c", content[:-1] + bytes([content[-1] ^ 1]))):
        (tmp_path / name).write_bytes(changed)
    a, b, c = (keys.fingerprint_file(tmp_path / name) for name in "abc")
    assert a == b != c


def test_processes_that_race_get_one_key(tmp_path: Path) -> None:
    """Of many that create a key at once all read the same, and no temporary file remains."""
    path = tmp_path / "keys" / "a.key"
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: read_or_create(path, lambda: f"key {number}"), range(32)))
    assert len(set(made)) == 1
    assert [file.name for file in path.parent.iterdir()] == ["a.key"]


def test_a_key_that_cannot_be_made_leaves_none(tmp_path: Path) -> None:
    """When making a key fails, nothing that could be taken for a key remains."""

    def fail() -> str:
        raise RuntimeError

    path = tmp_path / "keys" / "a.key"
    with pytest.raises(RuntimeError):
        read_or_create(path, fail)
    assert not path.parent.exists()
    assert read_or_create(path, lambda: "key") == "key"
