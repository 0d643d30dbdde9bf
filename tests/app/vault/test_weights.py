from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from app.errors import WeightsUnreadable
from app.keys import KeyEncryptionFile
from app.vault import sealing
from app.vault.sealing import SealedStore, WeightStore
from app.vault.store import FolderStore
from lethe.contract.problems import WeightsDestroyed
from tests.stored import flipped

WEIGHTS = sealing.to_safetensors(np.arange(8.0).reshape(2, 4))


@pytest.fixture
def key_encryption(tmp_path_factory: pytest.TempPathFactory) -> KeyEncryptionFile:
    made = KeyEncryptionFile(tmp_path_factory.mktemp("keys") / "kek")
    made.create()
    return made


@pytest.fixture
def store(tmp_path: Path, key_encryption: KeyEncryptionFile) -> WeightStore:
    """Return a store in a folder. Sealing in every kind of store is tested in `test_sealing.py`."""
    store = WeightStore(SealedStore(FolderStore(tmp_path), keys=tmp_path / "keys", key_encryption=key_encryption))
    store.put("ver_1", WEIGHTS)
    return store


def test_weights_round_trip(store: WeightStore) -> None:
    """Any process that opens the folder reads a version back unchanged."""
    assert store.get("ver_1") == WEIGHTS
    assert store.version_ids() == {"ver_1"}


def test_damaged_weights_are_unreadable(store: WeightStore, tmp_path: Path) -> None:
    """Reading weights with a flipped bit raises `WeightsUnreadable`."""
    path = tmp_path / "ver_1.sealed"
    path.write_bytes(flipped(path.read_bytes(), 20))
    with pytest.raises(WeightsUnreadable):
        store.get("ver_1")


@pytest.mark.parametrize("part", ["ver_1.sealed", "keys/ver_1.key"])
def test_an_incomplete_version_counts_as_destroyed(store: WeightStore, tmp_path: Path, part: str) -> None:
    """If a crash left only one of a version's two files, the version is listed, counts as destroyed and can be removed,
    even twice."""
    (tmp_path / part).unlink()
    assert store.version_ids() == {"ver_1"}
    with pytest.raises(WeightsDestroyed):
        store.get("ver_1")
    for _ in range(2):
        store.destroy("ver_1")
        assert store.version_ids() == set()


@given(arrays.arrays(np.float64, arrays.array_shapes(min_dims=2, max_dims=2), elements=st.floats(width=64)))
def test_safetensors_keep_every_bit(parameters: np.ndarray) -> None:
    """Weights read back from safetensors equal the original weights to the last bit."""
    for given_as in (parameters, np.asfortranarray(parameters)):
        back = sealing.from_safetensors(sealing.to_safetensors(given_as))
        assert back.dtype == np.float64
        assert back.tobytes() == parameters.tobytes()
