from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.errors import WeightsUnreadable
from app.keys import KeyEncryptionFile
from app.vault import sealing
from app.vault.sealing import SealedStore, WeightStore
from app.vault.store import FolderStore
from lethe.contract.problems import WeightsDestroyed

WEIGHTS = sealing.to_safetensors(np.arange(8.0).reshape(2, 4))


@pytest.fixture
def key_encryption(tmp_path_factory: pytest.TempPathFactory) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path_factory.mktemp("keys") / "kek")
    made.create()
    return made


@pytest.fixture
def store(tmp_path: Path, key_encryption: KeyEncryptionFile) -> WeightStore:
    """Return a store in a folder; sealing in any store is tested in `test_sealing.py`."""
    store = WeightStore(SealedStore(FolderStore(tmp_path), keys=tmp_path / "keys", key_encryption=key_encryption))
    store.put("ver_1", WEIGHTS)
    return store


def test_a_version_is_read_back(store: WeightStore) -> None:
    """Any process that opens the folder reads a version back unchanged."""
    assert store.get("ver_1") == WEIGHTS
    assert store.version_ids() == {"ver_1"}


def test_weights_are_sealed(store: WeightStore, tmp_path: Path) -> None:
    """A version on disk is a private file that reveals nothing of its content, and each version has its own key."""
    store.put("ver_2", WEIGHTS)
    sealed, other = (tmp_path / f"ver_{number}.sealed" for number in (1, 2))
    assert b"parameters" not in sealed.read_bytes()
    assert sealed.read_bytes() != other.read_bytes()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_destroyed_weights_are_gone(store: WeightStore, tmp_path: Path) -> None:
    """A destroyed version cannot be read any more, leaves no file, and can be destroyed again."""
    key = (tmp_path / "keys" / "ver_1.key").read_bytes()
    for _ in range(2):
        store.destroy("ver_1")
    with pytest.raises(WeightsDestroyed):
        store.get("ver_1")
    assert store.version_ids() == set()
    assert not any(key in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_destroying_overwrites_the_key_first(store: WeightStore, tmp_path: Path) -> None:
    """The bytes of the key are zeroed before it is removed, as another name of the same file shows."""
    other_name = tmp_path / "other"
    other_name.hardlink_to(tmp_path / "keys" / "ver_1.key")
    store.destroy("ver_1")
    content = other_name.read_bytes()
    assert content
    assert not any(content)


@pytest.mark.parametrize("part", ["ver_1.sealed", "keys/ver_1.key"])
def test_half_a_version_is_destroyed_too(store: WeightStore, tmp_path: Path, part: str) -> None:
    """A version of which a crash left only one of its two files is listed, counts as destroyed and can be removed."""
    (tmp_path / part).unlink()
    assert store.version_ids() == {"ver_1"}
    with pytest.raises(WeightsDestroyed):
        store.get("ver_1")
    store.destroy("ver_1")
    assert store.version_ids() == set()


@pytest.mark.parametrize("position", [0, 20, -1])
def test_damage_is_noticed(store: WeightStore, tmp_path: Path, position: int) -> None:
    """Weights with a flipped bit anywhere do not open."""
    path = tmp_path / "ver_1.sealed"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightsUnreadable):
        store.get("ver_1")


@pytest.mark.parametrize(
    ("file", "content"), [("ver_1.sealed", b""), ("keys/ver_1.key", b""), ("keys/ver_1.key", bytes(32))]
)
def test_what_a_crash_cut_short_does_not_open(store: WeightStore, tmp_path: Path, file: str, content: bytes) -> None:
    """A file without its content is damage, not weights."""
    (tmp_path / file).write_bytes(content)
    with pytest.raises(WeightsUnreadable):
        store.get("ver_1")


def test_a_version_cannot_be_passed_off_as_another(store: WeightStore, tmp_path: Path) -> None:
    """Sealed weights open only under the id that they were sealed for."""
    (tmp_path / "ver_1.sealed").rename(tmp_path / "ver_2.sealed")
    (tmp_path / "keys" / "ver_1.key").rename(tmp_path / "keys" / "ver_2.key")
    with pytest.raises(WeightsUnreadable):
        store.get("ver_2")


@given(arrays.arrays(np.float64, arrays.array_shapes(min_dims=2, max_dims=2), elements=st.floats(width=64)))
def test_safetensors_keep_every_bit(parameters: np.ndarray) -> None:
    """Weights are read back from safetensors with every bit."""
    for given_as in (parameters, np.asfortranarray(parameters)):
        back = sealing.from_safetensors(sealing.to_safetensors(given_as))
        assert back.dtype == np.float64
        assert back.tobytes() == parameters.tobytes()
