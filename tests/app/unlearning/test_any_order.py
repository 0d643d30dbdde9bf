"""Added rows, forgotten people and interrupted runs, in any order."""

import shutil
from collections.abc import Iterator
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
from app.accounting import certificates, repository as accounting_repository
from app.config import Settings
from app.db.tables import Addition, Certificate, Dataset, Record, Run, Version
from app.installations import Installation
from app.main import create_app
from app.rows.row_store import RowStore
from app.unlearning import service as unlearning
from lethe import verification
from lethe.verification import ledgers
from tests.conftest import FORM, npz, people
from tests.settled import is_settled
from tests.stored import rows_of, versions_in
from worker import runner

# --- any order of events ---------------------------------------------------------------------------------------------

SLOTS = 12
DIES_AT = ("edit", "commit_rows", "destroy_replaced", "delete", "confirm_edited", "publish")


class Killed(BaseException):
    """Error that simulates the death of a worker, after which none of its code runs."""


@contextmanager
def _dying_after(name: str) -> Iterator[None]:
    """Make the worker die after its first call of the named function in the block, so that its transaction is lost."""
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
    """An installation, and the people and rows that its dataset must contain according to the responses so far."""

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
        """Add new people, one of them with two rows."""
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
        """Check that rows of a forgotten person are refused until the suppression is lifted, and are then added."""
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
        """Run a worker that dies after its first call of `name`, if it makes one, and end its lease."""
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
        """Check that only the expected rows are stored, that the ledger and the certificates verify, and that chains
        are unbroken."""
        at = self.at
        rows = rows_of(at, self.dataset)
        assert int(rows.features.any(axis=1).sum()) == sum(self.held.values())
        assert set(at.rows.stored()) == {self.dataset}
        with at.database.reading() as session:
            assert is_settled(at.rows, self.dataset, session.get_one(Dataset, self.dataset).digest)
            lines = session.execute(sa.select(Record.slot, Record.subject_ref)).all()
            refs = {at.keys.subject_ref(DEFAULT_TENANT, name): n for name, n in self.held.items()}
            assert sorted(slot for slot, _ in lines) == np.flatnonzero(rows.features.any(axis=1)).tolist()
            counted: dict[str | None, int] = {}
            for _, ref in lines:
                counted[ref] = counted.get(ref, 0) + 1
            assert counted == refs
            ledgers.verify(accounting_repository.all_entries(session), versions_in(session))
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
def test_any_order_of_events_is_consistent(
    set_up_once: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After additions, requests and worker deaths in any order, the rows on disk are as expected and the ledger
    verifies."""
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
