import datetime
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from joserfc.jwk import KeySet
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app import installations
from app.access import service as access
from app.access.service import DEFAULT_TENANT
from app.accounting import anchors
from app.db import Database, migrate, now
from app.db.tables import Checkpoint, Dataset, LedgerEntry, LedgerLink, Model, Moment, Table, Tenant
from app.installations import Installation
from app.operations import periodic_jobs
from lethe.verification.chains import GENESIS, canonical, link_hash
from tests.faults.processes import LETHE, environment_of

Make = Callable[..., dict[str, Any]]


@pytest.fixture
def database(new_url: str) -> Iterator[Database]:
    """A database in which there is nothing yet."""
    database = Database(new_url)
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_up_and_down_and_up(database: Database) -> None:
    """Migrations make the whole schema, undo it without a trace, and make it again; only the newest is current."""
    assert not migrate.is_current(database.engine)
    for _ in range(2):
        migrate.upgrade(database.engine)
        assert migrate.is_current(database.engine)
        assert tables(database) == set(Table.metadata.tables)
        migrate.downgrade(database.engine)
        assert not migrate.is_current(database.engine)
        assert tables(database) == set()


def test_an_upgrade_of_what_is_current_changes_nothing(installation: Installation) -> None:
    """Every start migrates; where there is nothing to do, nothing is done to the data."""
    with installation.database.reading() as session:
        before = session.execute(sa.text("SELECT * FROM api_keys")).all()
    migrate.upgrade(installation.database.engine)
    with installation.database.reading() as session:
        assert session.execute(sa.text("SELECT * FROM api_keys")).all() == before


def test_the_tables_are_what_the_migrations_make(database: Database) -> None:
    """The schema in `app.db.tables` and the migrated one do not differ."""
    migrate.upgrade(database.engine)
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []


def test_tenants_keep_the_rule_by_which_their_people_are_known(database: Database) -> None:
    """Subject ids of tenants that were there before there was a choice are compared byte for byte, as they were."""
    migrate.upgrade(database.engine, "0001")
    policy = {"auto_accept": False, "time_zone": "Europe/Berlin"}
    tenant = {"id": "ten_1", "name": "old", "webhook_generation": 1, "policy": json.dumps(policy)}
    with database.engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO tenants (id, name, policy, webhook_generation, created_at)"
                " VALUES (:id, :name, :policy, :webhook_generation, '2026-01-01 00:00:00.000000')"
            ),
            tenant,
        )
    migrate.upgrade(database.engine)
    with database.writing() as session:
        assert session.get_one(Tenant, "ten_1").policy == policy | {"subject_rule": "exact"}
        new = access.ensure_default_tenant(session).tenant_id
        assert session.get_one(Tenant, new).policy["subject_rule"] == "text"


def test_models_whose_runs_were_shared_have_runs_of_one_process(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Make, work: Callable[[], int]
) -> None:
    """A model whose runs several processes shared is there as it was after an upgrade, and forgets."""
    model = new_model(new_dataset()["id"])
    work()
    before = get(f"/models/{model['id']}")
    migrate.downgrade(installation.database.engine, "0010")
    with installation.database.engine.begin() as connection:
        connection.execute(sa.text("UPDATE models SET ranks = 4"))
    migrate.upgrade(installation.database.engine)
    assert "ranks" not in {column["name"] for column in sa.inspect(installation.database.engine).get_columns("models")}
    assert get(f"/models/{model['id']}") == before
    request = forget("p1")
    work()
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"


@pytest.mark.service
def test_migrations_at_once(database: Database, new_url: str, tmp_path: Path) -> None:
    """When several processes migrate a new database at the same moment, all find it migrated and none fails."""
    environment = environment_of(tmp_path / "data", database_url=new_url)
    migrating = [subprocess.Popen([LETHE, "migrate"], env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate(timeout=240)[0] for process in migrating]
    assert [process.returncode for process in migrating] == [0, 0, 0]
    assert said == [b"The database has this release's schema.\n"] * 3
    assert migrate.is_current(database.engine)
    with database.reading() as session:
        assert session.scalar(sa.text("SELECT count(*) FROM api_keys")) == 1


def test_a_ledger_of_before_is_linked(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, work: Callable[[], int]
) -> None:
    """Entries and checkpoints that were there before ledgers had a chain over all models are in it afterwards, in the
    order of publishing, and verify; a worker signs it."""
    dataset = new_dataset()
    for _ in range(2):
        new_model(dataset["id"])
    work()
    forget("p1")
    work()
    periodic_jobs.sign_heads(installation)
    with installation.database.reading() as session:
        before = [link.hash for link in session.scalars(sa.select(LedgerLink).order_by(LedgerLink.sequence))]
    migrate.downgrade(installation.database.engine, "0003")
    assert "ledger_links" not in tables(installation.database)
    migrate.upgrade(installation.database.engine)
    keys = KeySet([installation.keys.signing_key])
    with installation.database.reading() as session:
        found = anchors.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT)
        assert (list(found.link_hashes), found.signed) == (before, 0)
        assert {one.log for one in session.scalars(sa.select(Checkpoint))} == {"audit"}
    installation.settings.resolved_tombstones().unlink(missing_ok=True)
    periodic_jobs.sign_heads(installation)
    with installation.database.reading() as session:
        assert anchors.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT).signed == len(before) == 4


_SAID = {
    None: "accepted",
    "the deadline was extended": "extended",
    "the clock was paused": "paused",
    "the clock runs again": "resumed",
    "the deadline is near": "at_risk",
    "the deadline has passed": "overdue",
    "nothing is held about this subject": "nothing_held",
    "1 rows erased from dataset ds_1": "rows_erased",
    "its worker stopped; it will be tried again": "handed_back",
    "its run failed (OSError) again; it is tried until it succeeds": "handed_back",
    "nobody knows": "noted",
}


def test_events_of_before_get_their_kinds(
    installation: Installation, forget: Make, get: Make, new_dataset: Make, gateway: Any
) -> None:
    """Events that were told in words are of the kind that the words told of, and are still told in them. One that a
    release without kinds adds afterwards is the change of a status where it has no words, and else noted."""
    new_dataset()
    request = forget("p1")
    path = f"/deletion-requests/{request['id']}/events"
    gateway.post(f"/v1{path.removesuffix('events')}extend", json={"reason": "so many"})
    shown = get(path)["items"]
    assert [event["kind"] for event in shown] == ["received", "accepted", "extended"]
    migrate.downgrade(installation.database.engine, "0013")
    add = sa.text(
        "INSERT INTO request_events (request_id, status, detail, actor, at)"
        " VALUES (:request_id, 'accepted', :detail, 'lethe', :at)"
    ).bindparams(sa.bindparam("at", type_=Moment()))
    told = {"request_id": request["id"], "at": datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)}
    with installation.database.engine.begin() as connection:
        connection.execute(add, [told | {"detail": detail} for detail in _SAID])
    migrate.upgrade(installation.database.engine)
    assert get(path)["items"][: len(shown)] == shown
    assert {event["detail"]: event["kind"] for event in get(path)["items"][len(shown) :]} == _SAID
    with installation.database.engine.begin() as connection:
        connection.execute(add, [told | {"detail": detail} for detail in (None, "the deadline is near")])
    last = [(event["kind"], event["detail"]) for event in get(path)["items"][-2:]]
    assert last == [("accepted", None), ("noted", "the deadline is near")]


def test_kinds_of_events_become_words_again(
    installation: Installation, forget: Make, get: Make, new_dataset: Make, work: Callable[[], int]
) -> None:
    """After a downgrade and an upgrade every event of a request is told as it was, its kind and its words."""
    new_dataset()
    request = forget("p1")
    path = f"/deletion-requests/{request['id']}/events"
    work()
    shown = get(path)["items"]
    assert [event["kind"] for event in shown] == ["received", "accepted", "running", "rows_erased", "completed"]
    migrate.downgrade(installation.database.engine, "0013")
    migrate.upgrade(installation.database.engine)
    assert get(path)["items"] == shown


def test_models_of_an_earlier_format_learn_again(
    installation: Installation, new_dataset: Make, new_model: Make, forget: Make, get: Make, work: Callable[[], int]
) -> None:
    """Mechanisms that do not say what a step reads say after an upgrade that it reads all rows; what an earlier format
    accounted for is vouched for, its models learn again, and whoever waits is forgotten."""
    model = new_model(new_dataset()["id"])
    work()
    request = forget("p1")
    shown = get(f"/models/{model['id']}")["mechanism"]
    _as_of_before(installation)
    migrate.downgrade(installation.database.engine, "0011")
    installation.settings.resolved_tombstones().unlink(missing_ok=True)
    installations.set_up(installation.settings)
    keys = KeySet([installation.keys.signing_key])
    with installation.database.reading() as session:
        assert session.get_one(Model, model["id"]).wanted == "relearn"
        found = anchors.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT).report
        assert (found.entries, found.not_recomputed) == (0, 1)
        lost = session.get_one(Dataset, model["dataset_id"]).lost_models["mdl_lost"]["mechanism"]
    assert get(f"/models/{model['id']}")["mechanism"] == shown == lost
    assert work() == 1
    assert get(f"/deletion-requests/{request['id']}")["status"] == "completed"
    assert [run["kind"] for run in get("/runs")["items"]] == ["relearn", "learn"]
    with installation.database.reading() as session:
        found = anchors.verify_tenant(session, keys, tenant_id=DEFAULT_TENANT).report
        assert (found.entries, found.not_recomputed) == (1, 1)


def _as_of_before(installation: Installation) -> None:
    """Mechanisms and the one ledger entry, as the format before had them; without triggers."""
    with installation.database.engine.connect() as connection, Session(connection) as session:
        if connection.dialect.name == "postgresql":
            session.execute(sa.text("SET LOCAL session_replication_role = replica"))
        else:
            named = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%append-only%'"
            for name in session.scalars(sa.text(named)).all():
                session.execute(sa.text(f"DROP TRIGGER {name}"))
        model = session.scalars(sa.select(Model)).one()
        new = ("batch_size", "num_batches", "cool_down")
        model.mechanism = {name: value for name, value in model.mechanism.items() if name not in new}
        lost = {"mdl_lost": {"mechanism": model.mechanism, "steps": [3]}}
        session.scalars(sa.select(Dataset)).one().lost_models = lost
        entry, link = session.scalars(sa.select(LedgerEntry)).one(), session.scalars(sa.select(LedgerLink)).one()
        said = {"format": "lethe-ledger/1", "mechanism": model.mechanism}
        entry.body = canonical(json.loads(entry.body) | said)
        entry.hash = link_hash(GENESIS, entry.body)
        link.body = canonical(json.loads(link.body) | {"hash": entry.hash})
        link.hash = link_hash(GENESIS, link.body)
        session.execute(sa.delete(Checkpoint).where(Checkpoint.log == "ledger"))
        session.commit()


@pytest.mark.parametrize("change", ["UPDATE ledger_links SET body = ''", "DELETE FROM checkpoints"])
def test_what_is_signed_is_append_only(
    installation: Installation, new_dataset: Make, new_model: Make, work: Callable[[], int], change: str
) -> None:
    """The database itself refuses to change or remove a link or a checkpoint."""
    new_model(new_dataset()["id"])
    work()
    with pytest.raises(DBAPIError, match="append-only"), installation.database.writing() as session:
        session.execute(sa.text(change))


@pytest.mark.parametrize("change", ["UPDATE ledger_entries SET body = ''", "DELETE FROM ledger_entries"])
def test_the_ledger_is_append_only(database: Database, change: str) -> None:
    """The database itself refuses to change or remove a ledger entry."""
    migrate.upgrade(database.engine)
    with database.writing() as session:
        at, tenant_id = now(session), access.ensure_default_tenant(session).tenant_id
        shape = {"num_features": 1, "num_slots": 1, "digest": "", "revision": 0, "classes": [], "schema": None}
        session.add(Dataset(id="ds_1", tenant_id=tenant_id, name="", created_at=at, **shape))
        session.flush()
        target = {"dataset_id": "ds_1", "epsilon": 1.0, "delta": 0.1, "mechanism": {}}
        session.add(Model(id="mdl_1", tenant_id=tenant_id, name="", status="live", created_at=at, **target))
        session.flush()
        session.add(LedgerEntry(model_id="mdl_1", sequence=1, body="{}", previous_hash="", hash=""))
    with pytest.raises(DBAPIError, match="append-only"), database.writing() as session:
        session.execute(sa.text(change))
    with database.reading() as session:
        assert session.scalars(sa.select(LedgerEntry.body)).all() == ["{}"]
