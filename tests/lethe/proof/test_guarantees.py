import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from lethe.proof import accountant, conversion, guarantees
from lethe.proof.accountant import Exposure, Run
from lethe.proof.errors import DomainError, PreconditionError
from lethe.proof.guarantees import Evidence, Notion
from lethe.proof.losses import Objective
from lethe.proof.mechanism import Adjacency, Mechanism

MECHANISM = Mechanism(
    objective=Objective.LOGISTIC_REGRESSION,
    num_slots=100,
    num_classes=2,
    l2=0.05,
    step_size=2.0,
    noise_scale=0.1,
    radius=20.0,
    learn_steps=50,
)
LEARN, FORGET_OTHERS, FORGET = Run(steps=50), Run(steps=7, records=1), Run(steps=9, records=3)


def evidence(**changed: Any) -> Evidence:
    """Return evidence of a run that deleted three records after 57 steps, two of which are one person's."""
    parts: dict[str, Any] = {
        "mechanism": MECHANISM,
        "history": (LEARN, FORGET_OTHERS, FORGET),
        "records": 2,
        "steps_present": 57,
        "exposures": {"mdl_1": Exposure(mechanism=MECHANISM, records=2, releases=((7, 1), (50, 1)))},
        "delta": 1e-3,
    }
    return Evidence(**parts | changed)


# --- guarantees ------------------------------------------------------------------------------------------------------


@given(notion=st.sampled_from(Notion), mu=st.floats(0, 50), delta=st.floats(1e-12, 0.9))
def test_epsilon_is_implied_by_mu(notion, mu, delta):
    """Epsilon is the exact conversion of mu, rounded up, so that the delta of mu-GDP at that epsilon is at most
    the stated delta."""
    made = guarantees.guarantee(notion, mu=mu, delta=delta)
    assert made.epsilon == conversion.gdp_epsilon(mu=mu, delta=delta)
    assert conversion.gdp_delta(epsilon=made.epsilon, mu=mu) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("notion", Notion)
def test_every_notion_names_its_adjacency_and_its_reference(notion):
    """Every notion states its adjacency for the person's records and its reference process."""
    made = guarantees.guarantee(notion, mu=0.5, delta=1e-3)
    assert made.adjacency == ("replace" if notion == "release" else "zero_out")
    assert made.reference_process == guarantees.REFERENCE_PROCESS[notion]


@pytest.mark.parametrize(("mu", "delta"), [(math.nan, 0.1), (math.inf, 0.1), (-0.1, 0.1), (0.1, 0.0), (0.1, math.nan)])
def test_invalid_numbers_have_no_guarantee(mu, delta):
    """A mu that is not finite, or a delta that is not between 0 and 1, raises an error instead of giving a
    guarantee."""
    with pytest.raises(DomainError):
        guarantees.guarantee(Notion.DELETION, mu=mu, delta=delta)


def test_a_version_has_unlearning_and_release_guarantees():
    """A version has one `unlearning` mu for all deletions together and one `release` mu for people whose records are
    still present."""
    chain = accountant.replay(MECHANISM, [LEARN, FORGET])
    unlearned, released = guarantees.of_chain(chain, last_run=FORGET, delta=1e-3)
    assert (unlearned.notion, unlearned.mu) == (Notion.UNLEARNING, accountant.unlearning_mu(chain))
    expected = accountant.release_mu(MECHANISM, steps=9, adjacency=Adjacency.REPLACE)
    assert (released.notion, released.mu) == (Notion.RELEASE, expected)


# --- evidence --------------------------------------------------------------------------------------------------------


def test_evidence_gives_every_notion_once():
    """The guarantees for a deletion contain the accountant's numbers, one for each notion and in a fixed order."""
    made = evidence()
    chain = accountant.replay(MECHANISM, [LEARN, FORGET_OTHERS, FORGET])
    mus = {guarantee.notion: guarantee.mu for guarantee in made.guarantees()}
    assert list(mus) == ["unlearning", "deletion", "adaptive", "release"]
    assert mus[Notion.UNLEARNING] == accountant.unlearning_mu(chain)
    assert mus[Notion.DELETION] == accountant.deletion_mu(chain, records=2, steps_present=57)
    each = [2 * accountant.release_mu(MECHANISM, steps=k, adjacency=Adjacency.ZERO_OUT) for k in (7, 50)]
    assert mus[Notion.ADAPTIVE] == pytest.approx(math.hypot(*each))
    assert mus[Notion.RELEASE] == accountant.release_mu(MECHANISM, steps=9, adjacency=Adjacency.REPLACE)
    assert mus[Notion.DELETION] <= min(mus[Notion.UNLEARNING], mus[Notion.ADAPTIVE])


def test_evidence_round_trips_through_json():
    """Evidence that is written as JSON and read back is unchanged and gives the same guarantees."""
    made = evidence()
    read = Evidence.from_json(json.loads(json.dumps(made.to_json())))
    assert read == made
    assert read.guarantees() == made.guarantees()


def test_a_person_erased_before_retraining_has_mu_zero():
    """A person who was erased before the model was retrained has a `deletion` mu of 0, whatever was published
    before."""
    made = evidence(history=(Run(steps=50, records=3),), steps_present=0)
    mus = {guarantee.notion: guarantee.mu for guarantee in made.guarantees()}
    assert mus[Notion.UNLEARNING] == mus[Notion.DELETION] == 0
    assert mus[Notion.ADAPTIVE] > 0


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"history": ()}, "history_complete"),
        ({"steps_present": 56}, "deletion_in_history"),
        ({"steps_present": 66}, "deletion_in_history"),
        ({"steps_present": 10**6}, "deletion_in_history"),
        ({"steps_present": 50}, "deletion_in_history"),
        ({"records": 4}, "deletion_in_history"),
    ],
)
def test_contradictory_evidence_is_refused(changed, name):
    """Evidence is refused with a specific error if its history has no training run, or no run that deleted that number
    of records at that time."""
    with pytest.raises(PreconditionError, match=name):
        evidence(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"records": 0},
        {"records": -1},
        {"records": True},
        {"records": 1.0},
        {"steps_present": -57},
        {"steps_present": 57.0},
    ],
)
def test_evidence_with_invalid_counts_is_refused(changed):
    """Evidence whose numbers of records or steps are not integers within range is refused."""
    with pytest.raises(DomainError, match=next(iter(changed))):
        evidence(**changed)


# --- comparison of stated and recomputed numbers ---------------------------------------------------------------------

RECOMPUTED: dict[str, Any] = {"mu": 0.25, "steps": 9, "notion": Notion.DELETION, "zero": 0.0}


@pytest.mark.parametrize("stated", [{}, {"mu": 0.25 * (1 + 1e-10)}, {"notion": "deletion"}])
def test_the_same_numbers_are_confirmed(stated):
    """Numbers that agree to nine digits are accepted, and a notion may be given as a string."""
    guarantees.confirm("part", stated=RECOMPUTED | stated, recomputed=RECOMPUTED)


@pytest.mark.parametrize(
    "stated",
    [
        {"mu": 0.25 * (1 - 2e-9)},
        {"mu": math.nan},
        {"mu": math.inf},
        {"mu": None},
        {"mu": "0.25"},
        {"zero": 0},
        {"zero": False},
        {"steps": 9.0},
        {"steps": 8},
        {"steps": None},
        {"notion": "unlearning"},
        {"zero": 1e-300},
    ],
)
def test_another_number_is_refused(stated):
    """A value that differs from the recomputed number or is not a number is refused. The message names the part and the
    field."""
    with pytest.raises(PreconditionError, match=rf"numbers_recompute: Expected part\.{next(iter(stated))}="):
        guarantees.confirm("part", stated=RECOMPUTED | stated, recomputed=RECOMPUTED)


def test_missing_and_additional_fields_are_refused():
    """A part with a missing or additional field is refused."""
    for stated in ({"mu": 0.25}, RECOMPUTED | {"note": 1}, [], None):
        with pytest.raises(PreconditionError, match="fields of part"):
            guarantees.confirm("part", stated=stated, recomputed=RECOMPUTED)


def test_guarantees_are_frozen():
    """A guarantee cannot be changed after its creation."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        evidence().guarantees()[0].mu = 0.0
