"""The search of bytes for vectors, texts and ids."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from lethe.features.stores.needles import StoreRecord, needles
from lethe.features.stores.searching import Searcher

VECTOR = np.random.default_rng(7).normal(size=48)


@hypothesis.given(
    before=st.binary(max_size=70),
    after=st.binary(max_size=70),
    form=st.sampled_from(["<f2", "<f4", "<f8"]),
    scale=st.sampled_from([1.0, 1 / float(np.linalg.norm(VECTOR))]),
    cut=st.integers(1, 60),
)
def test_a_vector_is_found_at_every_offset(before: bytes, after: bytes, form: str, scale: float, cut: int) -> None:
    """A vector is found at every offset and in each number format, whether stored unchanged or normalised, however the
    bytes are divided into chunks."""
    content = before + (VECTOR * scale).astype(form).tobytes() + after
    chunks = [content[place : place + cut] for place in range(0, len(content), cut)]
    hits = list(Searcher(needles([StoreRecord(id=None, vectors=(VECTOR,))], [])).hits(chunks))
    assert len(before) in {hit.offset for hit in hits}


@hypothesis.given(before=st.binary(max_size=70), text=st.text(min_size=8, max_size=200), cut=st.integers(1, 60))
def test_a_text_is_found_at_every_offset(before: bytes, text: str, cut: int) -> None:
    """A distinctive text is found at every offset, however the bytes are divided into chunks, and none of its samples
    is found elsewhere."""
    found = needles([StoreRecord(id=text)], [])
    content = before + text.encode()
    chunks = [content[place : place + cut] for place in range(0, len(content), cut)]
    for needle, hit in [(found[one.needle], one) for one in Searcher(found).hits(chunks)]:
        sample = needle.samples[hit.sample]
        assert isinstance(sample, bytes)
        assert content[hit.offset : hit.offset + len(sample)] == sample
    assert bool(found[0].samples) == bool({hit.needle for hit in Searcher(found).hits(chunks)})


def test_other_vectors_are_not_found() -> None:
    """A vector is not found in a million other numbers, in any format, or in overwritten bytes."""
    sought = Searcher(needles([StoreRecord(id=None, vectors=(VECTOR,))], []))
    others = np.random.default_rng(8).normal(size=(2**20 // 48, 48))
    for form in ("<f2", "<f4", "<f8"):
        assert not list(sought.hits([others.astype(form).tobytes()]))
    assert not list(sought.hits([bytes(2**16)]))


def test_indistinct_values_are_not_searched() -> None:
    """A vector of zeros, a short id and a text made up of one repeated character are not searched for, and the reason
    is stated."""
    found = needles([StoreRecord(id="42", vectors=(np.zeros(64),), texts=("aaaaaaaaaaaa",))], [])
    assert [(one.kind, one.why) for one in found] == [
        ("id", "too_short"),
        ("vector", "too_plain"),
        ("text", "too_plain"),
    ]
