"""The vault: sealed content can be opened until its key is destroyed, and never afterwards."""

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from app.keys import KeyEncryptionFile, KeyEncryptionKeyLost, Keys
from app.vault.pieces import LINES, Vault


@pytest.fixture
def key_encryption(tmp_path: Path) -> KeyEncryptionFile:
    (tmp_path / "keys").mkdir()
    found = KeyEncryptionFile(tmp_path / "keys" / "kek")
    found.create()
    return found


@pytest.fixture
def vault(tmp_path: Path, key_encryption: KeyEncryptionFile) -> Vault:
    return Vault(
        tmp_path / "vault", key_encryption, reference=Keys(tmp_path / "keys").create().reference, record_key=str.encode
    )


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@given(content=st.binary(max_size=300))
def test_sealed_pieces_round_trip(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sealed content is unreadable, and opening it returns the original content."""
    folder = tmp_path_factory.mktemp("vault")
    key_encryption = KeyEncryptionFile(folder / "kek")
    key_encryption.create()
    vault = Vault(folder / "vault", key_encryption, reference=lambda text: text.hex(), record_key=str.encode)
    sealed = vault.seal(content)
    assert vault.open(sealed) == content
    assert len(content) < 8 or content not in sealed


def test_another_process_opens_a_sealed_piece(vault: Vault, tmp_path: Path, key_encryption: KeyEncryptionFile) -> None:
    """Any process that shares the folder and the key-encryption key can open what another process sealed."""
    sealed = vault.seal(b"free text")
    assert Vault(tmp_path / "vault", key_encryption, reference=str, record_key=str.encode).open(sealed) == b"free text"


def test_a_piece_with_a_destroyed_key_cannot_be_opened(vault: Vault) -> None:
    """A piece whose key is destroyed cannot be opened; the other pieces can."""
    gone, kept = vault.seal(b"gone"), vault.seal(b"kept")
    vault.destroy([vault.key_of(gone)])
    assert vault.open(gone) is None
    assert vault.open(kept) == b"kept"
    vault.destroy([vault.key_of(gone)])
    assert vault.open(gone) is None


def test_a_destroyed_key_is_overwritten(vault: Vault, tmp_path: Path) -> None:
    """Destroying a key overwrites its whole line in the page with zeros."""
    sealed = vault.seal(b"gone")
    [page] = (tmp_path / "vault").glob("*.page")
    before = page.read_bytes()
    vault.destroy([vault.key_of(sealed)])
    after = page.read_bytes()
    changed = [place for place in range(LINES) if before[76 * place : 76 * place + 76] != after[76 * place :][:76]]
    assert len(changed) == 1
    assert not any(after[76 * changed[0] :][:76])


def test_sealing_again_uses_the_same_key(vault: Vault) -> None:
    """A replacement is sealed with the key of the piece that it replaces, so that destroying this key destroys both."""
    first = vault.seal(b"first")
    second = vault.seal(b"second", key=vault.key_of(first))
    assert vault.open(second) == b"second"
    vault.destroy([vault.key_of(second)])
    assert vault.open(first) is None
    with pytest.raises(KeyError):
        vault.seal(b"third", key=vault.key_of(first))


def test_pieces_do_not_share_a_key(vault: Vault, tmp_path: Path) -> None:
    """Threads that seal at the same time never share a key, even across several pages."""
    sealed: list[bytes] = []

    def seal() -> None:
        sealed.extend(vault.seal(b"x") for _ in range(LINES // 2))

    threads = [threading.Thread(target=seal) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({vault.key_of(one) for one in sealed}) == 5 * (LINES // 2)
    assert len(list((tmp_path / "vault").glob("*.page"))) == 3


@pytest.mark.parametrize("place", [0, 9, 12, 25, -1])
def test_a_changed_piece_is_refused(vault: Vault, place: int) -> None:
    """A sealed piece with a flipped bit cannot be opened, either because the piece was changed or because it names a
    key that does not exist."""
    sealed = bytearray(vault.seal(b"free text"))
    sealed[place] ^= 1
    with pytest.raises((ValueError, FileNotFoundError)):
        vault.open(bytes(sealed))


def test_the_key_encryption_key_can_be_rotated(vault: Vault, tmp_path: Path, key_encryption: KeyEncryptionFile) -> None:
    """After a rotation of the key-encryption key, every piece opens except destroyed ones, and copies of old pages
    cannot be used."""
    kept, gone = vault.seal(b"kept"), vault.seal(b"gone")
    vault.destroy([vault.key_of(gone)])
    [page] = (tmp_path / "vault").glob("*.page")
    copy = page.read_bytes()
    key_encryption.begin_rotation()
    vault.rewrap()
    key_encryption.end_rotation()
    assert vault.open(kept) == b"kept"
    assert vault.open(gone) is None
    assert vault.open(vault.seal(b"new")) == b"new"
    page.write_bytes(copy)
    with pytest.raises(KeyEncryptionKeyLost):
        vault.open(kept)


def test_opening_many_pieces_checks_the_key_once(
    vault: Vault, key_encryption: KeyEncryptionFile, tmp_path: Path
) -> None:
    """While many pieces are opened together, the key-encryption key is checked only once. If the key changes in the
    meantime, the change is noticed. Another thread checks the key separately."""
    sealed = [vault.seal(b"one"), vault.seal(b"two")]
    file = tmp_path / "keys" / "kek"
    with vault.at_once():
        assert vault.open(sealed[0]) == b"one"
        moved = file.rename(file.with_suffix(".elsewhere"))
        assert vault.open(sealed[1]) == b"two"
        with ThreadPoolExecutor() as others, pytest.raises(KeyEncryptionKeyLost):
            others.submit(vault.open, sealed[1]).result()
        moved.rename(file)
        key_encryption.begin_rotation()
        vault.rewrap()
        key_encryption.end_rotation()
        assert [vault.open(one) for one in sealed] == [b"one", b"two"]
    file.unlink()
    with pytest.raises(KeyEncryptionKeyLost):
        vault.open(sealed[0])


def test_an_interrupted_rotation_keeps_no_destroyed_key(
    vault: Vault, tmp_path: Path, key_encryption: KeyEncryptionFile
) -> None:
    """Destroying a key also removes the pages left behind by an interrupted rotation of the key-encryption key."""
    gone = vault.seal(b"gone")
    [page] = (tmp_path / "vault").glob("*.page")
    left = page.with_name(f".{page.name}.next")
    left.write_bytes(page.read_bytes())
    vault.destroy([vault.key_of(gone)])
    assert not left.exists()


def test_a_missing_page_is_not_a_destroyed_key(vault: Vault, tmp_path: Path) -> None:
    """A missing page raises an error, so that lost content is not mistaken for destroyed content."""
    sealed = vault.seal(b"free text")
    [page] = (tmp_path / "vault").glob("*.page")
    page.rename(page.with_suffix(".elsewhere"))
    with pytest.raises(FileNotFoundError):
        vault.open(sealed)


def test_pages_move_to_another_vault(vault: Vault, tmp_path: Path) -> None:
    """Pages of keys can be moved to a vault with another key-encryption key, which then opens the same pieces, except
    destroyed ones."""
    kept, gone = vault.seal(b"kept"), vault.seal(b"gone")
    vault.destroy([vault.key_of(gone)])
    key_encryption = KeyEncryptionFile(tmp_path / "another")
    key_encryption.create()
    other = Vault(tmp_path / "other", key_encryption, reference=str, record_key=str.encode)
    for name, keys in vault.pages():
        other.put_page(name, keys)
    assert other.open(kept) == b"kept"
    assert other.open(gone) is None


def test_an_incomplete_page_is_ignored(vault: Vault, tmp_path: Path) -> None:
    """If a new page does not fit on the disk, sealing fails, and the existing pages can still be backed up and
    rotated."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            vault.seal(b"does not fit")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    sealed = vault.seal(b"fits")
    assert len(list(vault.pages())) == 1
    vault.rewrap()
    assert vault.open(sealed) == b"fits"
