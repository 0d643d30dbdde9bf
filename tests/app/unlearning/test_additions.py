"""Rows that come to a dataset end every chain on it: nothing is unlearned over them, and whoever asks is found."""

import datetime
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import numpy as np
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from hypothesis import strategies as st

from app import installations
from app.access.service import DEFAULT_TENANT
from app.accounting import certificates
from app.accounting import repository as accounting_repository
from app.accounting import service as accounting
from app.config import Settings
from app.db.tables import Addition, Certificate, Dataset, Model, Record, Run, Version
from app.errors import RunDiffersFromPlan
from app.installations import Installation
from app.main import create_app
from app.operations import periodic_jobs
from app.rows.row_store import RowStore
from app.unlearning import queue
from app.unlearning import service as unlearning
from lethe import verification
from lethe.proof.mechanism import Mechanism
from lethe.verification import ledgers
from tests.conftest import FORM, npz, people
from tests.lethe.proof import lanes
from tests.stored import flipped, rows_of, slots_of
from worker import runner

Make = Callable[..., dict[str, Any]]
Get = Callable[[str], Any]


@pytest.fixture
def add(gateway: TestClient) -> Callable[..., str]:
    """Add people to a dataset; returns the id of the addition."""

    def send(dataset_id: str, *subjects: str) -> str:
        files = {"file": ("p.npz", people(*subjects))}
        answer = gateway.post(f"/v1/datasets/{dataset_id}/records", files=files)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    return send


@pytest.fixture
def live(new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]) -> dict[str, Any]:
    """A model that has unlearned two of twenty people."""
    model = new_model(new_dataset(rows=20)["id"], noise_scale=0.05)
    assert work() == 1
    for subject in ("p3", "p4"):
        forget(subject)
    assert work() == 1
    return model


def _claim(installation: Installation) -> queue.Claimed:
    with installation.database.writing() as session:
        claimed = queue.claim(session, worker="w", lease_seconds=0.0, max_requests=100)
    assert claimed
    return claimed


def test_a_claim_takes_batches_first(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], forget: Make
) -> None:
    """Batches get a revision, then erasures the next; the run is from scratch at the last, and knows which slots."""
    addition = add(live["dataset_id"], "new1", "new2")
    slots = slots_of(installation, live["dataset_id"], "new1", "new2")
    forget("new1")
    claimed = _claim(installation)
    assert (claimed.kind, claimed.erases, claimed.parent_version_id) == ("relearn", True, None)
    [taken] = claimed.additions
    assert (taken.addition_id, taken.slots, claimed.slots_to_null) == (addition, tuple(sorted(slots)), (slots[0],))
    with installation.database.reading() as session:
        assert session.get_one(Addition, addition).revision == 2
        assert session.get_one(Run, claimed.run_id).revision == 3
        assert session.get_one(Dataset, live["dataset_id"]).revision == 3


def test_a_lost_claim_leads_to_relearning_alone(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], forget: Make
) -> None:
    """However often a worker dies that took a batch, the next run is from scratch, and writes the batch again."""
    add(live["dataset_id"], "new1")
    slots = slots_of(installation, live["dataset_id"], "new1")
    for _ in range(3):
        claimed = _claim(installation)
        assert (claimed.kind, len(claimed.additions), claimed.additions[0].slots) == ("relearn", 1, tuple(slots))
    assert runner.run_next(installation, worker="w")
    forget("p7")
    claimed = _claim(installation)
    assert (claimed.kind, claimed.additions) == ("unlearn", ())


def test_nothing_is_unlearned_over_rows_that_came(
    installation: Installation, live: dict[str, Any], forget: Make, add: Callable[..., str]
) -> None:
    """A run that would continue a chain from before an addition is refused when it publishes, whoever planned it."""
    forget("p7")
    claimed = _claim(installation)
    assert claimed.kind == "unlearn"
    assert claimed.mechanism
    addition = add(live["dataset_id"], "new1")
    with installation.database.writing() as session:  # what no claim does while a run is under way
        session.get_one(Addition, addition).revision = session.get_one(Dataset, live["dataset_id"]).revision

    def publish() -> None:
        assert claimed.mechanism
        with installation.database.writing() as session:
            unlearning.publish(
                session,
                installation.keys,
                run_id=claimed.run_id,
                first_step_ran=claimed.first_step,
                steps_ran=claimed.steps,
                mechanism_ran=claimed.mechanism,
                weights_sha256="0" * 64,
                metrics={},
                observed=claimed.audit and lanes.observed(claimed.audit, claimed.mechanism),
            )

    with pytest.raises(RunDiffersFromPlan, match="rows were added"):
        publish()
    with installation.database.writing() as session:
        assert session.get_one(Model, live["id"]).live_version == 2
        session.get_one(Addition, addition).revision = None
    publish()


def test_a_standing_counts_rows_that_came(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], work: Callable[[], int]
) -> None:
    """From when rows may be there until a model has learned again, they are edits of what it stands on."""

    def standing() -> accounting.Standing:
        with installation.database.reading() as session:
            return accounting.standing(session, session.get_one(Model, live["id"]))

    before = standing().chain
    add(live["dataset_id"], "new1", "new2")
    assert standing().chain == before
    _claim(installation)
    assert standing().chain.influence == pytest.approx(before.influence + 2 * before.presence)
    assert work() == 1
    assert standing().chain.influence == 0


def test_deletion_of_somebody_added(
    installation: Installation,
    live: dict[str, Any],
    add: Callable[..., str],
    forget: Make,
    get: Get,
    work: Callable[[], int],
) -> None:
    """The certificate counts the steps since the model learned the rows, all versions so far, and verifies."""
    add(live["dataset_id"], "new1")
    assert work() == 1
    request = forget("new1")
    assert work() == 1
    [owed] = get(f"/deletion-requests/{request['id']}")["models"]
    with installation.database.reading() as session:
        jws = session.get_one(Certificate, owed["certificate_id"]).jws
        learn_steps = Mechanism.from_json(session.get_one(Model, live["id"]).mechanism).learn_steps
    evidence = verification.verify(jws, certificates.public_keys(installation.keys)).statement["evidence"]
    assert evidence["steps_present"] == learn_steps
    [exposure] = evidence["exposures"].values()
    assert sum(count for _, count in exposure["releases"]) == 3  # two from before: too many, never too few


def test_a_model_that_waits_for_requests_learns_again_at_once(
    installation: Installation,
    new_dataset: Make,
    new_model: Make,
    forget: Make,
    add: Callable[..., str],
    work: Callable[[], int],
) -> None:
    """Rows that came end the waiting of a model that lets requests wait for each other."""
    dataset = new_dataset(rows=20)
    other = new_model(dataset["id"], noise_scale=0.05)
    patient = new_model(dataset["id"], noise_scale=0.05, batching={"max_wait_seconds": 3600})
    assert work() == 2
    forget("p3")
    assert work() == 1
    add(dataset["id"], "new1")
    assert work() == 2
    with installation.database.reading() as session:
        assert session.get_one(Model, other["id"]).live_version == 3
        assert session.get_one(Model, patient["id"]).live_version == 2


def test_a_batch_that_nobody_committed_is_swept(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], work: Callable[[], int]
) -> None:
    """Sweeping wipes batches that no addition claims, and leaves those that wait."""
    addition = add(live["dataset_id"], "new1")
    with installation.rows.writing("add_orphan", 4) as writer:
        writer.write(np.ones((1, 4), dtype=np.float32), np.ones(1, dtype=np.int32))
    periodic_jobs.sweep_rows(installation)
    assert "add_orphan" in set(installation.rows.stored())
    periodic_jobs.sweep_rows(installation, unclaimed_for=datetime.timedelta(0))
    assert set(installation.rows.stored()) == {live["dataset_id"], addition}
    assert work() == 1
    assert set(installation.rows.stored()) == {live["dataset_id"]}


def test_a_batch_that_was_just_destroyed_is_no_damage(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], monkeypatch: pytest.MonkeyPatch, get: Get
) -> None:
    """A sweep that saw a batch before its worker destroyed it, and comes to it after, takes nothing for damaged."""
    add(live["dataset_id"], "new1")
    stored = installation.rows.stored()
    delete = RowStore.delete

    def sweep_after(self: RowStore, rows_id: str, **named: Any) -> None:
        delete(self, rows_id, **named)
        with monkeypatch.context() as patch:
            patch.setattr(RowStore, "stored", lambda self: stored)
            periodic_jobs.sweep_rows(installation)

    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "delete", sweep_after)
        assert runner.run_next(installation, worker="w")
    assert get(f"/datasets/{live['dataset_id']}")["damage"] is None
    assert get(f"/datasets/{live['dataset_id']}/additions")["items"][0]["status"] == "applied"


def test_a_batch_that_is_damaged_is_not_written(
    installation: Installation, live: dict[str, Any], add: Callable[..., str], settings: Settings, get: Get
) -> None:
    """A batch whose rows are not those that came fails the run; nothing is written, nothing is learned."""
    addition = add(live["dataset_id"], "new1")
    [block] = (settings.data_dir / "blocks").glob(f"{addition}.*.sealed")
    block.write_bytes(flipped(block.read_bytes(), 1000))
    assert runner.run_next(installation, worker="w")
    assert get("/runs")["items"][0]["error_code"] == "dataset_damaged"
    assert (
        not rows_of(installation, live["dataset_id"]).features[slots_of(installation, live["dataset_id"], "new1")].any()
    )
    assert get(f"/datasets/{live['dataset_id']}/additions")["items"][0]["status"] == "pending"


# --- any order of events ---------------------------------------------------------------------------------------------

SLOTS = 12
DIES_AT = ("edit", "commit_rows", "destroy_replaced", "delete", "confirm_edited", "publish")


class Killed(BaseException):
    """Of a worker, in this process: nothing after it is done."""


@contextmanager
def _dying_after(name: str) -> Iterator[None]:
    """The first call of this verb in the block is done, in a transaction that is lost, and then the worker is."""
    owner: Any = RowStore if hasattr(RowStore, name) else unlearning
    original = getattr(owner, name)

    def dying(*given: Any, **named: Any) -> Any:
        original(*given, **named)
        raise Killed

    setattr(owner, name, dying)
    try:
        yield
    finally:
        setattr(owner, name, original)


class Story:
    """An installation and what its rows must be: who is in the dataset, with which rows, by what was answered."""

    def __init__(self, installation: Installation, client: TestClient) -> None:
        self.at, self.client = installation, client
        form, upload = FORM, npz(rows=SLOTS)
        self.dataset = client.post("/v1/datasets", data=form, files={"file": ("d.npz", upload)}).json()["id"]
        asked = {"name": "m", "dataset_id": self.dataset, "l2": 0.05, "noise_scale": 0.05}
        self.model = client.post("/v1/models", json=asked).json()["id"]
        self.held = {f"p{row}": 1 for row in range(SLOTS)}
        self.asked: dict[str, str] = {}
        self.occupied = SLOTS  # slots that are not known to be null
        self.names = iter(range(10_000))
        self.work()

    def add(self, count: int) -> None:
        """New people, one of them with two rows."""
        free = SLOTS - self.occupied
        names = [f"n{next(self.names)}" for _ in range(count)]
        answer = self.client.post(
            f"/v1/datasets/{self.dataset}/records", files={"file": ("p.npz", people(*names, *names[:1]))}
        )
        assert answer.status_code == (202 if count + 1 <= free else 409), answer.text
        if answer.status_code == 202:
            self.held |= dict.fromkeys(names, 1) | {names[0]: 2}
            self.occupied += count + 1

    def forget(self, which: int) -> None:
        if not self.held:
            return
        subject = sorted(self.held)[which % len(self.held)]
        answer = self.client.post("/v1/deletion-requests", json={"subject_id": subject})
        assert answer.status_code == 202
        del self.held[subject]
        self.asked[subject] = answer.json()["id"]

    def come_back(self, which: int) -> None:
        """Somebody who was forgotten is refused, consents anew, and is added again."""
        gone = sorted(subject for subject in self.asked.keys() - self.held.keys() if self._is_forgotten(subject))
        if not gone or self.occupied == SLOTS:
            return
        subject = gone[which % len(gone)]
        path, files = f"/v1/datasets/{self.dataset}/records", {"file": ("p.npz", people(subject))}
        assert self.client.post(path, files=files).json()["code"] == "subject_suppressed"
        lifted = {"subject_id": subject, "reason": "consent_given"}
        assert self.client.post("/v1/suppressions:lift", json=lifted).is_success
        assert self.client.post(path, files=files).status_code == 202
        self.held[subject] = 1
        self.occupied += 1

    def _is_forgotten(self, subject: str) -> bool:
        request = self.client.get(f"/v1/deletion-requests/{self.asked[subject]}").json()
        return bool(request["status"] == "completed")

    def die(self, name: str) -> None:
        """A worker dies in its next run, if it comes so far; its lease ends."""
        with _dying_after(name):
            try:
                runner.run_next(self.at, worker="mortal")
            except Killed:
                with self.at.database.writing() as session:
                    unlearning.take_back(session, worker="mortal")
        self._count()

    def work(self) -> None:
        while runner.run_next(self.at, worker="w"):
            pass
        self._count()
        self.check()

    def _count(self) -> None:
        with self.at.database.reading() as session:
            self.occupied = session.scalar(sa.select(sa.func.count()).select_from(Record)) or 0

    def check(self) -> None:
        """On disk is who must be, nobody else and nothing beside; ledger and certificates verify; chains are whole."""
        at = self.at
        rows = rows_of(at, self.dataset)
        assert int(rows.features.any(axis=1).sum()) == sum(self.held.values())
        assert set(at.rows.stored()) == {self.dataset}
        with at.database.reading() as session:
            assert at.rows.is_settled(self.dataset, session.get_one(Dataset, self.dataset).digest)
            lines = session.execute(sa.select(Record.slot, Record.subject_ref)).all()
            refs = {at.keys.subject_ref(DEFAULT_TENANT, name): n for name, n in self.held.items()}
            assert sorted(slot for slot, _ in lines) == np.flatnonzero(rows.features.any(axis=1)).tolist()
            counted: dict[str | None, int] = {}
            for _, ref in lines:
                counted[ref] = counted.get(ref, 0) + 1
            assert counted == refs
            ledgers.verify(accounting_repository.all_entries(session), accounting_repository.all_versions(session))
            for certificate in session.scalars(sa.select(Certificate)):
                verification.verify(certificate.jws, certificates.public_keys(at.keys))
            insertions = list(session.scalars(sa.select(Addition.revision)))
            assert None not in insertions
            began = -1
            query = sa.select(Run).join(Version, Version.run_id == Run.id).order_by(Version.number)
            for run in session.scalars(query):
                began = began if run.kind == "unlearn" else run.revision
                assert not [r for r in insertions if r is not None and began < r <= run.revision]


@hypothesis.settings(max_examples=12, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
def test_any_order_of_events(set_up_once: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever is added, forgotten and killed in which order, on disk is who must be and the ledger verifies."""
    folder = tmp_path_factory.mktemp("story") / "data"
    shutil.copytree(set_up_once, folder)
    settings = Settings(data_dir=folder, lease_seconds=60.0, calls_per_minute=0)
    events = st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3)),
        st.tuples(st.just("forget"), st.integers(0, 50)),
        st.tuples(st.just("come_back"), st.integers(0, 50)),
        st.tuples(st.just("die"), st.sampled_from(DIES_AT)),
        st.tuples(st.just("work"), st.just(0)),
    )
    with TestClient(create_app(settings)) as client, installations.opened(settings) as installation:
        client.headers["Authorization"] = f"Bearer {settings.resolved_admin_key_file().read_text().strip()}"
        story = Story(installation, client)
        for kind, value in data.draw(st.lists(events, min_size=4, max_size=14)):
            match kind:
                case "add":
                    story.add(int(value))
                case "forget":
                    story.forget(int(value))
                case "come_back":
                    story.come_back(int(value))
                case "die":
                    story.die(str(value))
                case _:
                    story.work()
        story.work()
    shutil.rmtree(folder)
