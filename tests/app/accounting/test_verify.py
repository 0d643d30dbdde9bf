"""A real ledger verifies, and every copy with a single alteration is refused."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from app.accounting import repository
from app.db.tables import LedgerEntry, Version
from app.installations import Installation
from lethe.contract.problems import LedgerCorrupt
from lethe.verification import ledgers
from lethe.verification.chains import GENESIS, canonical, link_hash
from tests.stored import versions_in

pytestmark = pytest.mark.service

Make = Callable[..., dict[str, Any]]


@dataclass
class Story:
    """The stored ledger entries (sorted by model and sequence number) and versions of two models of one dataset."""

    entries: list[LedgerEntry]
    versions: list[Version]

    def body(self, index: int) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.entries[index].body)
        return body

    def rewrite(self, index: int, **changed: Any) -> None:
        """Replace parts of an entry's body and recompute its hash and all later hashes, as an attacker with access to
        the database could."""
        of_model = [entry for entry in self.entries if entry.model_id == self.entries[index].model_id]
        self.entries[index].body = canonical(self.body(index) | changed)
        previous = GENESIS
        for entry in of_model:
            entry.previous_hash, entry.hash = previous, link_hash(previous, entry.body)
            previous = entry.hash


def copied(row: Any) -> Any:
    """Return a copy of the row that is not attached to a session."""
    return type(row)(**{column.key: getattr(row, column.key) for column in sa.inspect(type(row)).column_attrs})


def read(installation: Installation) -> Story:
    with installation.database.reading() as session:
        return Story(
            entries=[copied(entry) for entry in repository.all_entries(session)],
            versions=[copied(version) for version in versions_in(session)],
        )


@pytest.fixture(scope="module")
def kept() -> list[Story]:
    return []


@pytest.fixture
def story(kept: list[Story], request: pytest.FixtureRequest) -> Story:
    """Train two models, which forget two people one after the other, and retrain one of them. This is done once, and
    each test gets a copy."""
    if not kept:
        # Of the fixtures below, the dataset is an npz file.
        pytest.importorskip("app.features.npz")
        new_dataset, new_model, forget, work, installation, gateway = map(
            request.getfixturevalue, ("new_dataset", "new_model", "forget", "work", "installation", "gateway")
        )
        dataset = new_dataset(rows=40, rows_each=2)
        first, _ = (new_model(dataset["id"], noise_scale=0.03) for _ in range(2))
        work()
        for person in ("p3", "p5"):
            forget(person)
            work()
        gateway.post(f"/v1/models/{first['id']}/relearn")
        work()
        kept.append(read(installation))
    return Story([copied(entry) for entry in kept[0].entries], [copied(version) for version in kept[0].versions])


def refusal(story: Story) -> str:
    with pytest.raises(LedgerCorrupt) as refused:
        ledgers.verify(story.entries, story.versions)
    return str(refused.value)


def test_an_intact_ledger_is_valid(story: Story) -> None:
    """Every hash and number of an intact ledger can be recomputed from its entries, and the report contains the head of
    each model's chain."""
    report = ledgers.verify(story.entries, story.versions)
    assert (report.models, report.entries) == (2, 7)
    assert report.heads == {entry.model_id: entry.hash for entry in story.entries}
    kinds = sorted(story.body(index)["kind"] for index in range(7))
    assert kinds == ["learn", "learn", "relearn", *["unlearn"] * 4]


def test_an_empty_ledger_is_valid() -> None:
    """A ledger without entries is valid."""
    assert ledgers.verify([], []) == ledgers.Report(models=0, entries=0, heads={})


# --- alterations that break the chain of hashes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["steps", "records", "weights_sha256", "kind", "chain", "guarantees", "mechanism", "recorded_at", "theorem"]
)
def test_a_body_altered_in_place_is_refused(story: Story, name: str) -> None:
    """An entry whose body was altered no longer matches its hash and is refused; the message names the model
    and the entry."""
    story.entries[1].body = canonical(story.body(1) | {name: "altered"})
    assert refusal(story) == f"Model {story.entries[1].model_id}, ledger entry 2: its body is not what was hashed."


def test_an_altered_hash_is_refused(story: Story) -> None:
    """An entry whose hash was altered no longer matches its body and is refused; the message names the entry."""
    story.entries[0].hash = "0" * 64
    assert "ledger entry 1: its body is not what was hashed" in refusal(story)


def test_an_entry_with_another_predecessor_is_refused(story: Story) -> None:
    """An entry that does not name the previous entry as its predecessor is refused."""
    story.entries[1].previous_hash = "0" * 64
    assert "ledger entry 2: it does not follow its predecessor" in refusal(story)


def test_a_missing_entry_is_refused(story: Story) -> None:
    """If the first entry or an entry in the middle is missing, verification reports its number."""
    for index, missed in ((0, 1), (1, 2)):
        rest = Story(story.entries[:index] + story.entries[index + 1 :], story.versions)
        assert f"entry {missed} is missing before it" in refusal(rest)


def test_a_missing_last_entry_is_refused(story: Story) -> None:
    """If the last entry is missing, verification names the version without an entry."""
    last = story.entries.pop()
    assert refusal(story) == f"Version {last.sequence} of model {last.model_id} is not the one in the ledger."


def test_reordered_entries_are_refused(story: Story) -> None:
    """Reordered entries are refused, even if they are renumbered and rehashed."""
    story.entries[1], story.entries[2] = story.entries[2], story.entries[1]
    assert f"Model {story.entries[1].model_id}, ledger entry 3: entry 2 is missing before it." == refusal(story)
    story.entries[1].sequence, story.entries[2].sequence = 2, 3
    story.rewrite(1)
    assert "ledger entry 2: its body belongs to another place in the ledger" in refusal(story)


def test_an_entry_of_another_model_is_refused(story: Story) -> None:
    """An entry that was moved to another model is refused, even if it is rehashed."""
    ours, theirs = story.entries[0], story.entries[-1]
    assert ours.model_id != theirs.model_id
    story.entries[0].body = canonical(story.body(0) | {"model_id": theirs.model_id})
    story.rewrite(0)
    assert "ledger entry 1: its body belongs to another place in the ledger" in refusal(story)


# --- alterations that are rehashed -----------------------------------------------------------------------------------


def test_rehashing_changes_nothing(story: Story) -> None:
    """Rehashing the entries of an intact ledger leaves them unchanged."""
    before = [entry.hash for entry in story.entries]
    story.rewrite(1)
    assert [entry.hash for entry in story.entries] == before


@pytest.mark.parametrize("name", ["steps", "variance", "presence", "influence"])
def test_a_wrong_chain_state_is_refused(story: Story, name: str) -> None:
    """A chain state that does not follow from the runs is refused, and the error names the incorrect number."""
    chain = story.body(1)["chain"]
    story.rewrite(1, chain=chain | {name: chain[name] * 2})
    assert (
        f"ledger entry 2: its numbers cannot be recomputed (PreconditionError: numbers_recompute: Expected chain.{name}"
        in refusal(story)
    )


@pytest.mark.parametrize("name", ["mu", "epsilon", "delta", "notion", "adjacency", "reference_process"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_wrong_guarantee_is_refused(story: Story, name: str, which: int) -> None:
    """A guarantee that does not follow from the runs is refused, and the error names the incorrect field."""
    claimed = copy.deepcopy(story.body(1)["guarantees"])
    claimed[which][name] = claimed[which][name] / 2 if isinstance(claimed[which][name], float) else "other"
    story.rewrite(1, guarantees=claimed)
    said = refusal(story)
    assert f"Model {story.entries[1].model_id}, ledger entry 2" in said
    assert "guarantees." in said


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"steps": 1}, "chain.steps"),
        ({"steps": True}, "integer steps=True"),
        ({"steps": "9"}, "steps"),
        ({"steps": 0}, "integer steps=0"),
        ({"records": 1}, "chain.influence"),
        ({"records": -1}, "integer records=-1"),
        ({"kind": "learn"}, "learned for"),
        ({"kind": "relearn"}, "learned for"),
        ({"kind": "erase"}, "kind 'erase' is unknown"),
        ({"guarantees": []}, "IndexError"),
        ({"mechanism": {}}, "mechanism_of_format"),
        ({"chain": {}}, "fields of chain"),
        ({"chain": []}, "fields of chain"),
        ({"format": "lethe-ledger/3"}, "format or theorem"),
        ({"theorem": "folklore/1"}, "format or theorem"),
        ({"version": 3}, "another place"),
        ({"sequence": 3}, "another place"),
    ],
    ids=str,
)
def test_altered_runs_are_refused(story: Story, changed: dict[str, Any], named: str) -> None:
    """If the steps, records, kinds, formats or positions in an entry differ from the recorded runs, the entry is
    refused, and the error names the model, the entry and what differs."""
    story.rewrite(1, **changed)
    said = refusal(story)
    assert said.startswith(f"Model {story.entries[1].model_id}, ledger entry 2: ")
    assert named in said


def test_a_missing_guarantee_is_refused(story: Story) -> None:
    """An entry is refused unless it lists each guarantee that covers all people exactly once and in the expected
    order."""
    claimed = story.body(1)["guarantees"]
    for stated in (claimed[:1], claimed * 2, claimed[::-1]):
        story.rewrite(1, guarantees=stated)
        assert "ledger entry 2: its numbers cannot be recomputed" in refusal(story)


@pytest.mark.parametrize("name", ["noise_scale", "num_slots", "l2", "contraction"])
def test_another_mechanism_is_refused(story: Story, name: str) -> None:
    """An entry is refused if its mechanism differs from that of the chain it continues."""
    mechanism = story.body(1)["mechanism"]
    story.rewrite(1, mechanism=mechanism | {name: mechanism[name] * 2})
    assert "ledger entry 2: its numbers cannot be recomputed" in refusal(story)


def test_a_chain_begins_with_training(story: Story) -> None:
    """A ledger whose first entry is an unlearning run is refused, because there is no chain for it to continue."""
    story.rewrite(0, kind="unlearn")
    assert "ledger entry 1" in (said := refusal(story))
    assert "it continues no chain" in said


# --- versions --------------------------------------------------------------------------------------------------------


def test_a_version_with_other_weights_is_refused(story: Story) -> None:
    """A version whose weights differ from those recorded in the ledger is refused, and the error names the version."""
    version = story.versions[1]
    version.weights_sha256 = "0" * 64
    assert refusal(story) == f"Version {version.number} of model {version.model_id} is not the one in the ledger."


def test_a_ledger_that_names_other_weights_is_refused(story: Story) -> None:
    """An entry whose weights differ from its version's weights is refused, even if the entry is rehashed."""
    story.rewrite(1, weights_sha256="0" * 64)
    assert refusal(story) == f"Version 2 of model {story.entries[1].model_id} is not the one in the ledger."


def test_a_removed_version_is_refused(story: Story) -> None:
    """If a version is in the ledger but not in the database, verification names it."""
    gone = story.versions.pop(0)
    said = refusal(story)
    assert said == f"The ledger accounts for version {gone.number} of model {gone.model_id}, which does not exist."


def test_an_added_version_is_refused(story: Story) -> None:
    """If a version is in the database but not in the ledger, verification names it."""
    added = copied(story.versions[0])
    added.number = 99
    story.versions.append(added)
    assert refusal(story) == f"Version 99 of model {added.model_id} is not the one in the ledger."
