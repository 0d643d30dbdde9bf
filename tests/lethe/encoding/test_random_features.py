"""Random features: reproducible from their seed alone, exact, and an approximation of the Gaussian kernel."""

import math
from typing import Any

import numpy as np
import pytest

from lethe.contract.problems import SchemaInvalid
from lethe.encoding.rows import RandomFeatures
from lethe.encoding.schema import is_same, parse_schema, stored
from tests.records import encode_records

NUMBER = {"kind": "standard", "center": 0, "scale": 1}
COLUMNS = {"a": NUMBER, "b": NUMBER, "y": {"role": "label", "values": ["0", "1"]}}
WORD = 2**64 - 1


def philox(key: int, words: int) -> list[int]:
    """Return the first words of Philox-4x64-10 (Salmon et al. 2011), with counters starting at 1, as in numpy."""
    found: list[int] = []
    for counter in range(1, words // 4 + 2):
        block, keys = [counter, 0, 0, 0], [key, 0]
        for _ in range(10):
            first, second = 0xD2E7470EE14C6C93 * block[0], 0xCA5A826395121157 * block[2]
            block = [
                (second >> 64) ^ block[1] ^ keys[0],
                second & WORD,
                (first >> 64) ^ block[3] ^ keys[1],
                first & WORD,
            ]
            keys = [(keys[0] + 0x9E3779B97F4A7C15) & WORD, (keys[1] + 0xBB67AE8584CAA73B) & WORD]
        found += block
    return found[:words]


def test_features_depend_only_on_the_seed() -> None:
    """The features equal those computed from weights and phases that this test derives from Philox words in integer
    arithmetic."""
    random, row, words = RandomFeatures(features=3, seed=7, scale=0.5), [0.25, -1.5], philox(7, 27)
    expected = []
    for j in range(3):
        *of_weights, of_phase = words[9 * j : 9 * j + 9]
        parts = [
            [word >> 16 * part & 0xFFFF for word in of_weights[4 * i : 4 * i + 4] for part in range(4)] for i in (0, 1)
        ]
        weights = [(sum(of_one) - 524_280) >> 4 for of_one in parts]
        total = sum(round(x * 2**16) * weight for x, weight in zip(row, weights, strict=True))
        unit = 2**16 * math.sqrt(16 * (2**32 - 1) / 12) / 16
        expected.append(math.sqrt(2 / 3) * math.cos(total * 0.5 / unit + (of_phase >> 11) * 2 * math.pi / 2**53))
    assert random.of(np.array([row])) == pytest.approx(np.array([expected]), rel=1e-12)


def test_features_do_not_depend_on_other_rows() -> None:
    """A row's features are bit-identical whichever rows are encoded with it and however large its values are."""
    random = RandomFeatures(features=50, seed=1, scale=0.3)
    rows = np.random.default_rng(0).normal(size=(200, 40)) * np.logspace(-3, 5, 200)[:, np.newaxis]
    together = random.of(rows)
    for place in (0, 57, 199):
        assert (random.of(rows[place : place + 1]) == together[place]).all()
    assert np.isfinite(together).all()


def test_features_approximate_the_gaussian_kernel() -> None:
    """Inner products of features approximate exp(-scale^2 |x - x'|^2 / 2) to within six standard deviations of a mean
    of D terms."""
    random, scale = RandomFeatures(features=16_384, seed=3, scale=0.7), 0.7
    rows = np.random.default_rng(1).normal(size=(8, 5))
    features = random.of(rows)
    squares = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
    kernel = np.exp(-(scale**2) * squares / 2)
    assert np.abs(features @ features.T - kernel).max() < 6 / math.sqrt(random.features)


def test_schemas_with_random_features_round_trip() -> None:
    """Random features replace the features of the columns. Their schema is stored with its scale and read back
    unchanged, and a different seed gives a different encoding."""
    schema = parse_schema({"columns": COLUMNS, "random_features": {"features": 64, "seed": 5}})
    document: dict[str, Any] = schema.to_json()
    assert document["random_features"] == {"features": 64, "seed": 5, "scale": 1 / math.sqrt(2)}
    assert (schema.num_features, schema.num_held) == (64, 66)
    assert stored(document) == schema
    other = document | {"random_features": document["random_features"] | {"seed": 6}}
    assert not is_same(document, other)
    records = [{"a": a, "b": b} for a in (-1, 1) for b in (-1, 1)]
    rows = encode_records(schema, records)
    assert rows.shape == (4, 65)
    crossed = np.array([-1.0, 1.0, 1.0, -1.0])  # which no linear model of a and b can represent
    assert np.linalg.matrix_rank(rows) == 4
    assert rows @ np.linalg.lstsq(rows, crossed, rcond=None)[0] == pytest.approx(crossed, abs=1e-4)


@pytest.mark.parametrize(
    ("said", "path"),
    [
        (5, "random_features"),
        ({"features": 5, "seed": 1, "kind": "fourier"}, "random_features"),
        ({"features": 0, "seed": 1}, "random_features.features"),
        ({"features": 20_000, "seed": 1}, "random_features.features"),
        ({"features": 5}, "random_features.seed"),
        ({"features": 5, "seed": -1}, "random_features.seed"),
        ({"features": 5, "seed": 2**53}, "random_features.seed"),
        ({"features": 5, "seed": 1, "scale": 0}, "random_features.scale"),
    ],
)
def test_invalid_settings_are_refused(said: object, path: str) -> None:
    """A setting out of range is refused, and the error names its path."""
    with pytest.raises(SchemaInvalid) as refused:
        parse_schema({"columns": COLUMNS, "random_features": said})
    assert [fault.path for fault in refused.value.errors] == [path]


def test_too_many_weights_are_refused() -> None:
    """A schema that needs more than 64 MiB of weights is refused before any weight is drawn."""
    wide = {"v": {"kind": "vector", "length": 4096}, "y": COLUMNS["y"]}
    with pytest.raises(SchemaInvalid):
        parse_schema({"columns": wide, "random_features": {"features": 4096, "seed": 1}})
