"""The comparison accepts values that differ between runs, and reports every other difference."""

import pytest

from tests.acceptance.printed import documents, lines, shortened, steady

PRINTED = """\
POST /v1/deletion-requests -> 202 dr_7ca497657147699f768c, due 2026-12-22
completed: version 2 is published, 0.44 s after the request
│ accuracy            │ 84.61%     │ 84.55%     │
│ steps               │ 6,915      │ 184        │
│ seconds             │ 5.26       │ 0.32       │
Passes over the rows: 1.9 to forget, 69.8 to relearn, 21 by a plain refit (scikit-learn's L-BFGS, no certificate).
valid  crt_6829c7589ec935488e11  request dr_9d77f4e4cd832161e60c  version 2  key etEVGvp-5-Dd
       canary test epsilon <= 0.9999 certified, >= 0.578 proved by 256 canaries and controls
"""
ANSWER = {
    "id": "ds_ce9592d35a43c584fa17",
    "digest": "73722e79b9ce" + "0" * 52,
    "due_at": "2026-12-20T12:49:02.116000Z",
    "epsilon": 1695.0460396336612,
    "steps": 184,
    "predictions": [{"label": ">50K", "probabilities": {"<=50K": 0.1732, ">50K": 0.8267}}],
    "source": None,
}
STATED = """{"id": "ds_00000000000000000000", "digest": "0123456789ab...", "due_at": "2027-01-01T00:00:00Z",
    "epsilon": 1695.046, "steps": 184,
    "predictions": [{"label": ">50K", "probabilities": {"<=50K": 0.19, ">50K": 0.81}}], "...": "..."}"""


def test_values_that_differ_between_runs_are_ignored() -> None:
    """Two outputs count as equal if they differ only in ids, hashes, times, durations, decimals of accuracies, signers
    or canary test results."""
    later = PRINTED
    for old, new in {
        "dr_7ca497657147699f768c": "dr_00000000000000000000",
        "2026-12-22": "2027-01-31",
        "0.44 s": "10.4 s",
        "84.61%": "84.49%",
        "│ 5.26       │": "│ 16.29      │",
        "etEVGvp-5-Dd": "_-0123456789",
        "0.578": "0.6244",
        "21 by a plain": "22 by a plain",
    }.items():
        assert old in later
        later = later.replace(old, new)
    assert lines(later) == lines(PRINTED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("184", "185"),
        ("6,915", "6,916"),
        ("version 2 is", "version 3 is"),
        ("0.9999", "0.9998"),
        ("256 canaries", "128 canaries"),
        ("1.9 to forget", "2.9 to forget"),
        ("84.61%", "94.61%"),
        ("canary test ", "canary tests "),
    ],
)
def test_changed_numbers_and_words_are_noticed(old: str, new: str) -> None:
    """Two outputs count as different if any step, version, epsilon, count or word differs."""
    assert lines(PRINTED.replace(old, new)) != lines(PRINTED)


def test_only_elided_fields_may_be_missing() -> None:
    """A response may contain fields that the page omits only if the page prints three dots in their place."""
    [stated] = documents(STATED)
    assert steady(stated) == steady(shortened(ANSWER, like=stated))
    del stated["..."]
    assert steady(stated) != steady(shortened(ANSWER, like=stated))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"steps": 184', '"steps": 183'),
        ("1695.046", "1695.146"),
        (">50K", ">60K"),
        ('"steps"', '"step"'),
        ("ds_", "mdl_"),
    ],
)
def test_changed_responses_are_noticed(old: str, new: str) -> None:
    """A response counts as different from the one printed on the page if a number or word differs or if a printed field
    is missing."""
    [stated] = documents(STATED.replace(old, new))
    assert steady(stated) != steady(shortened(ANSWER, like=stated))
