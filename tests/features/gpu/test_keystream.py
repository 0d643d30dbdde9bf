import copy
import os
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from worker.features.gpu import keystream
from worker.features.gpu.keystream import CONSTANTS, DeviceNoise, chacha20_, quantiles

CPU = torch.device("cpu")
KEY = bytes(range(32))
BLOCK_OF_SECTION_2_3_2 = """
    10 f1 e7 e4 d1 3b 59 15 50 0f dd 1f a3 20 71 c4 c7 d1 f4 c7 33 c0 68 03 04 22 aa 9a c3 d4 6c 4e
    d2 82 64 46 07 9f aa 09 14 c2 d7 05 d9 8b 02 a2 b5 12 9c d1 de 16 4e b9 cb d0 83 e8 a2 50 3c 4e
"""
BLOCK_OF_ZEROS = """
    76 b8 e0 ad a0 f1 3d 90 40 5d 6a e5 53 86 bd 28 bd d2 19 b8 a0 8d ed 1a a8 36 ef cc 8b 77 0d c7
    da 41 59 7c 51 57 48 8d 77 24 e0 3f b8 d8 4a 37 6a 43 b8 f4 15 18 a1 1c c3 87 b6 69 b2 ee 65 86
"""


def state_of(key: bytes, counter_and_nonce: bytes) -> torch.Tensor:
    """Return the state of RFC 8439, section 2.3, as one column."""
    words = np.frombuffer(np.array(CONSTANTS, "<u4").tobytes() + key + counter_and_nonce, "<i4")
    return torch.from_numpy(words.copy()).view(16, 1)


def normal(source: DeviceNoise, *shape: int) -> torch.Tensor:
    numbers = torch.empty(shape, dtype=torch.float64)
    source.fill(numbers)
    return numbers


def with_key(key: bytes) -> DeviceNoise:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda size: key[:size])
        return DeviceNoise(CPU)


@pytest.mark.parametrize(
    ("key", "counter_and_nonce", "expected"),
    [
        (KEY, bytes.fromhex("01000000 000000090000004a00000000"), BLOCK_OF_SECTION_2_3_2),
        (bytes(32), bytes(16), BLOCK_OF_ZEROS),
    ],
)
def test_blocks_match_the_rfc(key: bytes, counter_and_nonce: bytes, expected: str) -> None:
    """The block function reproduces the blocks of RFC 8439, section 2.3.2 and appendix A.1 (vector 1), bit for bit."""
    states = state_of(key, counter_and_nonce)
    chacha20_(states)
    assert states.t().contiguous().numpy().tobytes() == bytes.fromhex(expected)


def test_blocks_match_openssl() -> None:
    """The blocks of a hundred random states, computed in one call, equal OpenSSL's ChaCha20 bit for bit."""
    keys = [(os.urandom(32), os.urandom(16)) for _ in range(100)]
    states = torch.cat([state_of(*key) for key in keys], dim=1)
    chacha20_(states)
    expected = [Cipher(algorithms.ChaCha20(*key), None).encryptor().update(bytes(64)) for key in keys]
    assert states.t().contiguous().numpy().tobytes() == b"".join(expected)


def test_numbers_are_quantiles_of_the_keystream() -> None:
    """The numbers are, in order, the normal quantiles of the low 52 bits of each 8-byte word of OpenSSL's keystream."""
    stream = Cipher(algorithms.ChaCha20(KEY, bytes(16)), None).encryptor().update(bytes(64 * 30))
    source = with_key(KEY)
    numbers = torch.cat([normal(source, 3, 40).view(-1), normal(source, 1, 120).view(-1)])
    cells = np.frombuffer(stream, "<u8") & np.uint64(2**52 - 1)
    np.testing.assert_allclose(numbers.numpy(), stats.norm.ppf((cells + 0.5) / 2.0**52), rtol=1e-12)


def test_numbers_do_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of a large request are the same whether they are computed in pieces or all at once."""
    whole = normal(with_key(KEY), 1000)
    monkeypatch.setattr(keystream, "_NUMBERS_AT_ONCE", 64)
    assert torch.equal(normal(with_key(KEY), 1000), whole)


def test_counter_runs_beyond_32_bits() -> None:
    """Block 2^32 + 5 has the counter words 5 and 1, low word first, so the keystream does not repeat after 2^32
    blocks."""
    source = with_key(KEY)
    source._next_block = 2**32 + 5
    expected = state_of(KEY, bytes.fromhex("05000000 01000000 0000000000000000"))
    chacha20_(expected)
    assert source._words(1).numpy().tobytes() == expected.t().contiguous().numpy().tobytes()


def test_blocks_are_used_once() -> None:
    """Every request for numbers starts at a block that no earlier request has used."""
    source = DeviceNoise(CPU)
    starts = []
    for size in (1, 8, 9, 100):
        starts.append(source._next_block)
        normal(source, size)
    assert [later - earlier for earlier, later in pairwise([*starts, source._next_block])] == [1, 1, 2, 13]


def test_an_exhausted_counter_is_refused() -> None:
    """A request for numbers that would exceed the range of the block counter is refused, and so is every later request,
    however small."""
    source = DeviceNoise(CPU)
    source._next_block = 2**62 - 1
    with pytest.raises(RuntimeError, match="used up its counter"):
        normal(source, 9)
    with pytest.raises(RuntimeError, match="used up its counter"):
        normal(source, 1)


@pytest.mark.parametrize(("word", "sign"), [(0, -1), (-1, 1)])
def test_extreme_words_give_finite_numbers(word: int, sign: int) -> None:
    """The smallest and the largest keystream word give the documented extreme values -8.21 and 8.21."""
    number = torch.empty(1, dtype=torch.float64)
    quantiles(torch.tensor([word]), out=number)
    assert number.item() == pytest.approx(sign * 8.2095, abs=1e-4)


def test_two_sources_differ() -> None:
    """The first two numbers of a hundred noise sources are all different."""
    sources = [DeviceNoise(CPU) for _ in range(100)]
    numbers = torch.cat([normal(source, 1) for source in sources] + [normal(source, 1) for source in sources])
    assert len(set(numbers.tolist())) == 200


def test_default_generators_are_not_used() -> None:
    """Seeding torch's default generator does not determine the noise, and drawing noise does not change the generator's
    state."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = normal(DeviceNoise(CPU), 8)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(1)
    assert not torch.equal(first, normal(DeviceNoise(CPU), 8))


@pytest.mark.parametrize(
    "room", [torch.empty(0, dtype=torch.float64), torch.empty(3), torch.empty(4, 4, dtype=torch.float64).t()]
)
def test_buffers_are_validated(room: torch.Tensor) -> None:
    """A buffer that is empty, in single precision or not contiguous is refused."""
    with pytest.raises(ValueError, match="contiguous and in float64"):
        DeviceNoise(CPU).fill(room)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_source_cannot_be_duplicated(duplicate: object) -> None:
    """Copying or pickling a source is refused."""
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        duplicate(DeviceNoise(CPU))  # type: ignore[operator]


def test_source_does_not_survive_a_fork() -> None:
    """A child process cannot draw from an inherited noise source, because its parent would draw the same numbers."""
    source = DeviceNoise(CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="after a fork"):
            normal(source, 1)


def test_key_is_overwritten_on_close() -> None:
    """After closing, the state that contained the key is zero and the source refuses to draw. Closing twice is a
    no-op."""
    with DeviceNoise(CPU) as source:
        state = source._initial
        assert state is not None
        assert state.any()
    assert not state.any()
    source.close()
    with pytest.raises(RuntimeError, match="closed"):
        normal(source, 1)


def test_repr_does_not_reveal_the_key() -> None:
    """The repr of a noise source does not contain its key, and the source has only its declared attributes."""
    source = with_key(KEY)
    assert KEY.hex() not in repr(source)
    assert not hasattr(source, "__dict__")


@pytest.mark.gpu
def test_gpu_and_cpu_make_the_same_numbers() -> None:
    """For the same key, the keystreams of GPU and CPU are bit-identical, and the numbers agree within rounding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda size: KEY[:size])
        there, here = DeviceNoise(torch.device("cuda")), DeviceNoise(CPU)
    assert torch.equal(there._words(1000).cpu(), here._words(1000))
    numbers = torch.empty(5, 1000, dtype=torch.float64, device="cuda")
    there.fill(numbers)
    torch.testing.assert_close(numbers.cpu(), normal(here, 5, 1000), rtol=1e-12, atol=1e-14)
