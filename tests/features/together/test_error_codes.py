"""Every error code is caused by a real call, over HTTP or the command line, and docs/errors.md advises what to do."""

import datetime
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api import problems
from app.config import Settings
from app.installations import Installation
from lethe.contract.sets import Scope
from tests.conftest import npz
from tests.features.networks import nets
from tests.features.together.error_codes import calls, damage
from tests.features.together.error_codes.world import World, conditions
from tests.tables import at_length

DOCUMENT = Path(__file__).parents[3] / "docs" / "errors.md"
ED25519 = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
JWK = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "1"}
MUCH_WORK = {"eps_target": 1.0, "sigma": 0.03, "total": 200, "batch": 1, "Mlip": 1, "m": 0.0119, "L": 0.26}
MUCH_WORK |= {"n": 11982, "delta": 1e-5}
CSV_SCHEMA = {
    "columns": {"age": {"kind": "numeric", "min": 0, "max": 100}, "y": {"role": "label", "values": ["a", "b"]}}
}


@pytest.fixture
def world(
    gateway: TestClient,
    installation: Installation,
    settings: Settings,
    work: Callable[[], int],
    new_dataset: Callable[..., dict[str, Any]],
    new_model: Callable[..., dict[str, Any]],
    forget: Callable[..., dict[str, Any]],
    key_with: Callable[..., dict[str, str]],
) -> World:
    return World(
        gateway=gateway,
        installation=installation,
        settings=settings,
        work=work,
        new_dataset=new_dataset,
        new_model=new_model,
        forget=forget,
        key_with=key_with,
    )


REACHED: dict[str, Callable[[World], str]] = {
    "internal_error": damage.defect,
    # malformed input
    "drop_unanswered": lambda w: w.code("GET", "/drop/answer.csv?file=20260312_4821_Email.csv"),
    "people_joined": lambda w: w.code(
        "POST", "/identities", json={"links": [{"identifiers": [{"id": "p1"}, {"id": "p2"}]}]}
    ),
    "input_invalid": lambda w: w.code("POST", "/deletion-requests", json={}),
    "batch_refused": lambda w: w.code("POST", "/deletion-requests:batch", json={"requests": [{}]}),
    "schema_invalid": lambda w: w.upload(b"age\n1\n", "people.csv", schema="{}"),
    "row_invalid": lambda w: w.upload(b"age,y\nold,a\n1,b\n", "people.csv", schema=json.dumps(CSV_SCHEMA)),
    "message_early": partial(calls.between, issued=1, expires=2),
    "message_expired": partial(calls.between, issued=-2, expires=-1),
    "dataset_unusable": lambda w: w.upload(b"age,y\n1,a\n2,a\n", "people.csv", schema=json.dumps(CSV_SCHEMA)),
    "upload_too_large": lambda w: w.code("POST", "/lineage", headers={"Content-Length": str(2**40)}, content=b"{}"),
    "content_encoding_unsupported": lambda w: w.code(
        "POST", "/lineage", headers={"Content-Encoding": "gzip"}, content=b"{}"
    ),
    "attachment_invalid": lambda w: w.code(
        "POST", f"/deletion-requests/{w.request_id()}/attachments", files={"file": ("a.exe", b"MZ")}
    ),
    "network_invalid": lambda w: calls.network(w.gateway, b"PK no network"),
    "network_failed": calls.network_without_memory,
    "work_exceeded": lambda w: w.code("POST", "/accounting/bounds/alg6_K_list", json={"params": MUCH_WORK}),
    "request_timed_out": lambda w: damage.raw(
        w, b"POST /admin/login HTTP/1.1\r\nHost: lethe\r\nContent-Length: 9\r\n\r\n{"
    ),
    "precondition_failed": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "l2": 0.05, "noise_scale": 1e-200}
    ),
    "identity_statement_required": calls.statement_wanted,
    "target_too_weak": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "target": {"epsilon": 8.1}}
    ),
    "target_unreachable": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": w.dataset_id(), "l2": 1e-8}
    ),
    # who is asking
    "unauthenticated": lambda w: w.code("GET", "/models", headers={"Authorization": "Bearer no"}),
    "scope_missing": lambda w: w.code("GET", "/tenant", headers=w.key_with(Scope.MODELS_READ)),
    "rate_limited": calls.rate_limited,
    "login_refused": lambda w: calls.at_the_door(w, "/admin/login", email="nobody@example.com", password="wrong"),
    "identity_refused": partial(calls.by_provider, path="/admin/oidc/return?state=x&code=x"),
    "form_refused": calls.form_from_elsewhere,
    "message_refused": partial(calls.with_agent, **{"business-id": "ANOTHER"}),
    "acknowledgement_refused": lambda w: w.code(
        "POST", f"/system-tasks/{calls.task(w)}/acknowledge", json={"by": "somebody"}
    ),
    "identity_statement_invalid": partial(calls.statement_wanted, identity_statement="a.b.c"),
    # what is asked for
    "not_found": partial(calls.unknown, path="/nothing"),
    "key_unknown": partial(calls.unknown, path="/api-keys/key_0", method="DELETE"),
    "user_unknown": partial(calls.unknown, path="/users/usr_0"),
    "invitation_over": lambda w: calls.at_the_door(w, "/admin/welcome", invitation="used"),
    "agent_unknown": partial(calls.unknown, path="/agents/agt_0", method="DELETE"),
    "tenant_unknown": partial(calls.unknown, path="/tenants/ten_0"),
    "bound_unknown": lambda w: w.code("POST", "/accounting/bounds/none", json={"params": {}}),
    "network_unknown": partial(calls.unknown, path="/networks/net_0"),
    "dataset_unknown": partial(calls.unknown, path="/datasets/ds_0"),
    "addition_unknown": lambda w: w.code("GET", f"/datasets/{w.dataset_id()}/additions/add_0"),
    "subject_unknown": lambda w: w.code("GET", f"/datasets/{w.dataset_id()}/subjects/nobody"),
    "model_unknown": partial(calls.unknown, path="/models/mdl_0"),
    "version_unknown": lambda w: w.code("GET", f"/models/{w.model_id()}/versions/1"),
    "request_unknown": partial(calls.unknown, path="/deletion-requests/dr_0"),
    "delivery_unknown": partial(calls.unknown, path="/webhook-deliveries/whd_0"),
    "system_unknown": partial(calls.unknown, path="/systems/sys_0"),
    "attested_trainer_unknown": partial(calls.unknown, path="/attested-trainers/atr_0"),
    "export_unknown": lambda w: w.code("PATCH", f"/models/{w.model_id()}/exports/exp_0", json={}),
    "dp_model_unknown": partial(calls.unknown, path="/dp-models/dpm_0"),
    "system_task_unknown": partial(calls.unknown, path="/system-tasks/tsk_0"),
    "issuer_unknown": partial(calls.unknown, path="/identity-issuers/iss_0", method="DELETE"),
    "run_unknown": partial(calls.unknown, path="/runs/run_0"),
    "rehearsal_unknown": lambda w: w.code("GET", f"/models/{w.model_id()}/rehearsals/reh_0"),
    "certificate_unknown": partial(calls.unknown, path="/certificates/crt_0"),
    "attachment_unknown": lambda w: w.code("GET", f"/deletion-requests/{w.request_id()}/attachments/att_0"),
    "weights_destroyed": calls.weights_destroyed,
    # what cannot be done now
    "idempotency_conflict": calls.idempotency_conflict,
    "tenant_exists": lambda w: w.twice("/tenants", {"name": "other"}),
    "user_exists": lambda w: w.twice("/users", {"name": "Maria", "email": "maria@example.com", "role": "viewer"}),
    "last_administrator": calls.last_administrator,
    "last_admin_key": calls.last_admin_key,
    "evaluation_overlaps": calls.evaluation_overlaps,
    "subject_rule_fixed": calls.subject_rule_fixed,
    "transition_forbidden": calls.decided,
    "request_open": calls.referred,
    "already_extended": partial(calls.extended, times=2),
    "extension_too_late": partial(calls.extended, after=datetime.timedelta(days=60)),
    "extension_not_provided": lambda w: calls.extended(w, **w.under()),
    "clock_runs_on": calls.paused,
    "details_erased": calls.noted_too_late,
    "notes_full": calls.noted_too_often,
    "attachments_full": calls.attached_too_often,
    "reply_unprintable": lambda w: w.code(
        "GET", f"/deletion-requests/{w.request_id(external_id='案件')}/reply?format=pdf"
    ),
    "not_assignable": lambda w: w.code(
        "POST", f"/deletion-requests/{w.request_id()}/assign", json={"assignee": "usr_0"}
    ),
    "subject_suppressed": calls.suppressed,
    "storage_quota_exceeded": calls.beyond_quota,
    "dataset_full": lambda w: w.code(
        "POST", f"/datasets/{w.dataset_id()}/records", files={"file": ("more.npz", npz(rows=4, seed=1))}
    ),
    "secret_not_present": lambda w: w.code("POST", "/webhook-secret/rotate", json={"generation": 3}),
    "network_exists": lambda w: calls.network(w.gateway, nets.linear()) or calls.network(w.gateway, nets.linear()),
    "network_in_use": calls.network_in_use,
    "tangent_served_elsewhere": calls.tangent_predicted,
    "system_task_ended": lambda w: calls.closed_task(w, "acknowledge"),
    "manifest_refused": calls.manifest,
    "bundle_not_ready": lambda w: w.code("GET", f"/deletion-requests/{calls.in_review(w)}/bundle"),
    "issuer_exists": lambda w: w.twice(
        "/identity-issuers", {"issuer": "https://login.example", "audience": "lethe", "jwks": {"keys": [JWK]}}
    ),
    "rehearsal_pending": lambda w: w.twice(f"/models/{w.live()}/rehearsals", {"people": 10}),
    "rehearsal_done": calls.rehearsed,
    "rehearsal_too_large": lambda w: w.code("POST", f"/models/{w.live()}/rehearsals", json={"people": 31}),
    "model_held": lambda w: w.code("POST", f"/models/{calls.held(w)}/predictions", json={"records": [[0, 0, 0]]}),
    "model_in_use": lambda w: w.code("DELETE", f"/models/{calls.waited_for(w)}"),
    "model_retired": lambda w: w.code("POST", f"/models/{calls.retired(w, 'models', w.model_id())}/relearn"),
    "dataset_in_use": lambda w: w.code("DELETE", f"/datasets/{w.new_model(w.dataset_id())['dataset_id']}"),
    "adaptive_budget_spent": lambda w: w.code(
        "POST",
        "/models",
        json={"name": "m", "dataset_id": w.dataset_id(form={"adaptive_epsilon": "0.01", "adaptive_delta": "1e-5"})},
    ),
    "dataset_retired": lambda w: w.code(
        "POST", "/models", json={"name": "m", "dataset_id": calls.retired(w, "datasets", w.dataset_id())}
    ),
    "run_not_cancellable": lambda w: w.code("POST", f"/runs/{calls.ended_run(w)}/cancel"),
    "model_not_live": lambda w: w.code("GET", f"/accounting/models/{w.model_id()}"),
    "agent_exists": lambda w: w.twice("/agents", {"agent_id": "agent", "name": "Agent", "verify_key": ED25519}),
    # refusals of the engine and the accountant
    "run_differs_from_plan": partial(damage.failed, damage=damage.other_mechanism),
    "run_kind_unsupported": damage.unsupported_kind,
    "audit_failed": damage.refuted,
    "dataset_damaged": partial(damage.failed, damage=damage.damaged_rows),
    "sealed_text_damaged": damage.lost_page,
    "certificate_damaged": damage.flipped_certificate,
    "dataset_too_large": partial(damage.failed, damage=damage.too_little_memory),
    "second_moment_exceeded": damage.exceeded,
    "dataset_busy": damage.busy_dataset,
    "ledger_corrupt": damage.forged_ledger,
    "ledger_restored": damage.restored_ledger,
    "audit_corrupt": damage.forged_audit,
    "weights_unreadable": damage.weights_unreadable,
    "mechanism_unreadable": damage.mechanism_unreadable,
    "method_unsupported": damage.method_unsupported,
    "not_converged": damage.not_converged,
    "certificate_beyond_limits": calls.less_than_asked_for,
    "signature_unverifiable": damage.unverifiable,
    "certificate_invalid": lambda w: w.code("POST", "/certificates:verify", json={"jws": "a.b.c"}),
    # not here, not now
    "method_not_allowed": partial(calls.unknown, path="/models", method="PUT"),
    "unavailable": damage.no_database,
    "installation_mismatch": damage.changed_key,
    "identity_provider_unavailable": partial(calls.by_provider, path="/admin/oidc"),
    "storage_full": damage.full_disk,
    "database_damaged": damage.damaged_database,
    "busy": damage.too_many_calls,
    # starting the service
    "already_running": damage.two_at_once,
    "database_unreadable": lambda w: w.lethe("ledger", "verify", LETHE_DATA_DIR=str(w.settings.data_dir / "none")),
    "folder_exposed": lambda w: w.lethe("migrate", LETHE_STORE_URL="/proc/self/task"),
    "signing_unusable": damage.unusable_certificate,
    "address_in_use": damage.taken_port,
    # backups
    "backup_refused": lambda w: w.lethe("restore", "nothing", "--key-file", "nothing"),
    "backup_damaged": damage.damaged_archive,
    "tombstones_stale": damage.stale_tombstones,
    "tombstones_damaged": partial(damage.failed, damage=damage.damaged_tombstones),
    "database_put_back": damage.older_database,
    "restore_unfinished": damage.cut_off_restore,
}
NEVER_SEEN = {
    "conflict": "what all that cannot be done now have in common; each has a code of its own",
    "lease_lost": "a worker whose run another one took says so in its own log: the run is not its own any more",
}


BY_PROCESSES = {
    "address_in_use",
    "already_running",
    "backup_damaged",
    "backup_refused",
    "folder_exposed",
    "ledger_restored",
    "request_timed_out",
    "restore_unfinished",
    "tombstones_stale",
}
"""Codes that need started services or a long wait."""


@pytest.mark.parametrize("code", at_length(REACHED, besides=REACHED.keys() - BY_PROCESSES))
def test_every_code_is_returned_by_a_real_call(world: World, code: str) -> None:
    """Each error code is returned by at least one real call."""
    assert REACHED[code](world) == code


def test_every_condition_is_covered() -> None:
    """Every error condition is either caused by a call in these tests, or has a documented reason why callers never see
    it."""
    assert REACHED.keys() | NEVER_SEEN.keys() == {condition.code for condition in conditions()}
    assert not REACHED.keys() & NEVER_SEEN.keys()


def rows() -> Iterator[tuple[str, str]]:
    """Yield the code and the status of each table row that has a meaning and advice."""
    for line in DOCUMENT.read_text().splitlines():
        if found := re.fullmatch(r"\| `(\w+)` \| (\S+) \| \S.* \| \S.* \|", line):
            yield found[1], found[2]


def test_the_document_lists_every_code() -> None:
    """docs/errors.md has one row per code, with its status, its meaning and the recommended action."""
    documented = list(rows())
    ours = {condition.code: str(problems.status_of(condition)) for condition in conditions()}
    assert sorted(code for code, _ in documented) == sorted((ours.keys() - {"conflict"}) | {"settings_invalid"})
    for code, status in documented:
        assert status == ours.get(code) or (status == "–" and ours.get(code, "500") == "500"), code
