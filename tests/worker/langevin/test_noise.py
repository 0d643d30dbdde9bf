import copy
import os
import pickle

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from worker.langevin.noise import SystemNoise

SIZE = 1_000_000
FALSE_ALARM = 1e-9  # probability that a statistical test below fails for a correct source


class ConstantKeystream:
    def __init__(self, byte: bytes) -> None:
        self._byte = byte

    def update(self, data: bytes) -> bytes:
        return self._byte * len(data)


def test_noise_is_normally_distributed() -> None:
    """A million noise values pass a Kolmogorov-Smirnov test of normality at a false-alarm rate of 1e-9."""
    assert stats.kstest(SystemNoise().normal(SIZE).numpy(), "norm").pvalue > FALSE_ALARM


def test_noise_fills_equally_likely_cells_evenly() -> None:
    """A million noise values are spread evenly over a thousand equally likely cells, according to a chi-squared test
    with a false-alarm rate of 1e-9."""
    cells = np.floor(stats.norm.cdf(SystemNoise().normal(SIZE).numpy()) * 1000).astype(int)
    assert stats.chisquare(np.bincount(cells, minlength=1000)).pvalue > FALSE_ALARM


def test_tails_have_the_expected_weight() -> None:
    """Among a million noise values, the shares beyond 3.5 on either side match the normal distribution, each with a
    false-alarm rate of 1e-9."""
    numbers, weight = SystemNoise().normal(SIZE).numpy(), stats.norm.sf(3.5)
    for beyond in (numbers > 3.5, numbers < -3.5):
        assert stats.binomtest(int(beyond.sum()), SIZE, weight).pvalue > FALSE_ALARM


def test_successive_noise_values_are_uncorrelated() -> None:
    """Successive noise values and their squares are uncorrelated: with a false-alarm rate of 1e-9, their correlations
    are within the bounds for independence."""
    numbers = SystemNoise().normal(SIZE).numpy()
    bound = stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(SIZE - 1)
    for signal in (numbers, numbers**2):
        assert abs(np.corrcoef(signal[:-1], signal[1:])[0, 1]) < bound


def test_two_sources_differ() -> None:
    """A hundred noise sources each start with a different value, and no value occurs twice."""
    sources = [SystemNoise() for _ in range(100)]
    numbers = torch.cat([source.normal(1) for source in sources] + [source.normal(1) for source in sources])
    assert len(set(numbers.tolist())) == 200


def test_default_generators_are_not_used() -> None:
    """The noise does not depend on seeds of the default generators of torch and numpy, and drawing noise does not
    change their state."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = SystemNoise().normal(8)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(1)
    assert not torch.equal(first, SystemNoise().normal(8))


def test_noise_values_are_quantiles_of_the_keystream() -> None:
    """With a known key, the noise values are the normal quantiles of the low 52 bits of each keystream word."""
    source, key = SystemNoise(), bytes(range(32))
    source._keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * 64)), "<u8")
    expected = stats.norm.ppf(((words & np.uint64(2**52 - 1)).astype(float) + 0.5) / 2.0**52)
    np.testing.assert_allclose(source.normal(64).numpy(), expected, rtol=1e-12)


def test_each_noise_value_is_returned_once() -> None:
    """No noise value is returned twice, however few are requested at a time, even if the caller overwrites the returned
    vector."""
    source, seen = SystemNoise(), []
    for size in (1, 7, 105, 2048) * 10:
        drawn = source.normal(size)
        seen.append(drawn.numpy().copy())
        drawn.zero_()
    numbers = np.concatenate(seen)
    assert len(np.unique(numbers)) == len(numbers)  # of 2^52 values: two are equal by chance once in 2 * 10^7 runs


@pytest.mark.parametrize(("byte", "sign"), [(b"\x00", -1), (b"\xff", 1)])
def test_extreme_words_give_finite_values(byte: bytes, sign: int) -> None:
    """The smallest and largest keystream words give the documented ends of the range, -8.21 and 8.21."""
    source = SystemNoise()
    source._keystream = ConstantKeystream(byte)
    assert source.normal(1).item() == pytest.approx(sign * 8.2095, abs=1e-4)


def test_noise_is_double_precision() -> None:
    """Noise is returned as one float64 vector of the requested size."""
    numbers = SystemNoise().normal(7)
    assert (numbers.shape, numbers.dtype) == ((7,), torch.float64)


def test_a_request_for_no_noise_is_refused() -> None:
    """Requesting zero noise values raises an error instead of returning an empty vector."""
    with pytest.raises(ValueError, match="size=0 >= 1"):
        SystemNoise().normal(0)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_source_cannot_be_duplicated(duplicate: object) -> None:
    """Copying or pickling a noise source is refused."""
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        duplicate(SystemNoise())  # type: ignore[operator]


def test_key_is_not_kept() -> None:
    """Neither the attributes nor the representation of a noise source contain the key that was drawn from the operating
    system."""
    key = os.urandom(32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", lambda size: key)
        source = SystemNoise()
    shown = [repr(source), *(repr(getattr(source, name)) for name in SystemNoise.__slots__)]
    assert not any(key.hex() in text or repr(key) in text for text in shown)
    assert not hasattr(source, "__dict__")


def test_source_does_not_survive_a_fork() -> None:
    """A noise source inherited by a child process refuses to return noise, because the parent would draw the same
    noise."""
    source = SystemNoise()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="after a fork"):
            source.normal(1)
