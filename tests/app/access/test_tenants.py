from typing import Any, Literal

import pytest
import sqlalchemy as sa
from joserfc.jwk import KeySet

from app.access import service as access, tenants
from app.audit import repository, service as audit
from app.audit.checkpoints import AUDIT
from app.db import Actor
from app.db.tables import ApiKey
from app.installations import Installation
from lethe.contract.problems import InputInvalid, TenantExists, TenantUnknown
from lethe.contract.sets import Scope, SubjectRule
from lethe.contract.tenants import Policy
from tests.counted import statements_to


def test_a_new_tenant_has_one_admin_key(installation: Installation, by: Actor) -> None:
    """A new tenant is created with its name, its policy and one key, which has the admin scope but not the
    operator scope."""
    key = access.new_key()
    with installation.database.writing(by=by) as session:
        tenant = tenants.create(session, name="shop", policy=Policy(time_zone="Europe/Berlin"), admin_key=key)
    with installation.database.reading() as session:
        caller = access.caller_with(session, access.find(session, key))
        assert caller.tenant_id == tenant.id
        assert caller.scopes == {Scope.ADMIN}
        assert caller.policy == Policy(time_zone="Europe/Berlin")
        assert len(session.scalars(sa.select(ApiKey).where(ApiKey.tenant_id == tenant.id)).all()) == 1
        with pytest.raises(TenantUnknown):
            tenants.get(session, "ten_0")


def test_one_statement_reads_what_a_batch_needs_to_know_of_tenants(installation: Installation, by: Actor) -> None:
    """One statement reads the rules of several tenants and the last entries of their logs, so that appending to each
    log reads nothing further, and both logs verify."""
    database = installation.database
    with database.writing(by=by) as session:
        policy = Policy(subject_rule=SubjectRule.EMAIL)
        other = tenants.create(session, name="shop", policy=policy, admin_key="k").id
        audit.record(session, "thing.made", "th_1")
    with database.writing() as session, statements_to(database.engine) as statements:
        assert access.subject_rules(session, [by.tenant_id, other]) == {by.tenant_id: "text", other: "email"}
        deeds = [
            audit.Deed(tenant_id=tenant_id, actor="key", action="thing.made", object_id="th_2")
            for tenant_id in (other, by.tenant_id, other)
        ]
        audit.record_all(session, deeds)
    assert len([statement for statement in statements if "SELECT" in statement and "pg_advisory" not in statement]) == 1
    with database.reading() as session:
        logs = {id_: list(repository.all_entries(session, tenant_id=id_)) for id_ in (by.tenant_id, other)}
        for tenant_id, log in logs.items():
            AUDIT.verify(tenant_id, log, [], KeySet([]))
    assert [entry.object_id for entry in logs[other][-2:]] == ["th_2", "th_2"]
    assert [entry.object_id for entry in logs[by.tenant_id][-2:]] == ["th_1", "th_2"]


def test_both_logs_record_a_new_tenant(installation: Installation, by: Actor) -> None:
    """The operator's log records who created a tenant, the tenant's own log begins with its creation, and both
    logs verify."""
    with installation.database.writing(by=by) as session:
        tenant = tenants.create(session, name="shop", policy=Policy(), admin_key="k")
    with installation.database.reading() as session:
        theirs = list(repository.all_entries(session, tenant_id=tenant.id))
        ours = list(repository.all_entries(session, tenant_id=by.tenant_id))
    assert [(one.actor, one.action) for one in theirs] == [
        ("operator", "tenant.created"),
        ("operator", "api_key.created"),
    ]
    assert (ours[-1].actor, ours[-1].action, ours[-1].object_id) == (by.name, "tenant.created", tenant.id)
    for tenant_id, entries in ((tenant.id, theirs), (by.tenant_id, ours)):
        assert AUDIT.verify(tenant_id, entries, [], KeySet([])).entries == len(entries)


def test_names_are_unique(installation: Installation, by: Actor) -> None:
    """A tenant name that is already in use is refused."""
    with installation.database.writing(by=by) as session:
        tenants.create(session, name="shop", policy=Policy(), admin_key="k1")
    with pytest.raises(TenantExists), installation.database.writing(by=by) as session:
        tenants.create(session, name="shop", policy=Policy(), admin_key="k2")


def test_a_policy_change_keeps_other_fields(installation: Installation, by: Actor) -> None:
    """A policy change sets the given fields and keeps all others; if any field is invalid, nothing changes."""
    with installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"grace_seconds": 60})
        tenants.change_policy(session, {"regulations": {"lgpd": {"days": 15}}})
    with pytest.raises(InputInvalid) as refusal, installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"grace_seconds": -1, "report_seconds": 9})
    assert [fault.path for fault in refusal.value.errors] == ["policy.grace_seconds"]
    with installation.database.reading() as session:
        policy = access.policy_of(session, by.tenant_id)
    assert policy == Policy.model_validate({"grace_seconds": 60, "regulations": {"lgpd": {"days": 15}}})


@pytest.mark.parametrize("claim", ["email", "phone_number", "customer_id"])
def test_a_business_id_without_a_claim_is_refused(
    installation: Installation, by: Actor, claim: Literal["email", "phone_number", "customer_id"]
) -> None:
    """A policy with a business id is refused unless it states which claim of an agent's messages contains the subject
    id. If the tenant uses different subject ids, a default claim would not match anyone."""
    wrong: list[dict[str, Any]] = [{"drp_business_id": "SHOP"}, {"drp_business_id": "SHOP", "drp_claim": None}]
    for policy in wrong:
        with pytest.raises(InputInvalid) as refusal, installation.database.writing(by=by) as session:
            tenants.change_policy(session, policy)
        assert [fault.path for fault in refusal.value.errors] == ["policy.drp_claim"]
        with pytest.raises(InputInvalid), installation.database.writing(by=by) as session:
            tenants.create(session, name="third", policy=Policy(**policy), admin_key="k2")
    with installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"drp_business_id": "SHOP", "drp_claim": claim})
        tenants.change_policy(session, {"grace_seconds": 5})
    with pytest.raises(InputInvalid), installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"drp_claim": None})


def test_a_business_id_belongs_to_one_tenant(installation: Installation, by: Actor) -> None:
    """A tenant cannot use another tenant's business id, because it would receive the messages that agents send to that
    tenant."""
    with installation.database.writing(by=by) as session:
        tenants.change_policy(session, {"drp_business_id": "SHOP", "drp_claim": "email"})
        tenants.change_policy(session, {"drp_business_id": "SHOP", "grace_seconds": 5})
        other = tenants.create(session, name="other", policy=Policy(), admin_key="k1")
    theirs = Actor(tenant_id=other.id, name="key")
    with pytest.raises(InputInvalid), installation.database.writing(by=theirs) as session:
        tenants.change_policy(session, {"drp_business_id": "SHOP", "drp_claim": "email"})
    with pytest.raises(InputInvalid), installation.database.writing(by=by) as session:
        tenants.create(session, name="third", policy=Policy(drp_business_id="SHOP", drp_claim="email"), admin_key="k2")
    with installation.database.writing(by=theirs) as session:
        tenants.change_policy(session, {"drp_business_id": "OTHER", "drp_claim": "email"})
