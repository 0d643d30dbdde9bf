"""Scopes of all pages, in one table: what a key must be allowed to read or do so that a page opens."""

import re
from collections.abc import Callable
from typing import Any

from app.features.desk.menu import entries
from lethe.contract.sets import Scope
from tests.features.desk import addresses
from tests.features.desk.browsing import Browser

READ, WRITE, REVIEW = Scope.REQUESTS_READ, Scope.REQUESTS_WRITE, Scope.REQUESTS_REVIEW
SEE, CHANGE = Scope.MODELS_READ, Scope.MODELS_WRITE
ACCOUNT, ADMIN, OPERATOR = Scope.ACCOUNTING_READ, Scope.ADMIN, Scope.OPERATOR
TABLE: dict[tuple[Scope, ...], str] = {
    (): "/admin /admin/ /admin/accounting /admin/account /admin/live /admin/outlook /admin/overview /admin/session",
    (READ,): """/admin/calendar /admin/deliveries /admin/deliveries/{delivery_id} /admin/inbox/cases/{request_id}
        /admin/inbox/live /admin/leaving-reasons /admin/requests /admin/requests.csv /admin/requests/{request_id}
        /admin/requests/{request_id}/live /admin/suppressions""",
    (WRITE,): "/admin/requests/new",
    (REVIEW,): """/admin/audit-log /admin/audit-log/checkpoints.json /admin/audit-log/export /admin/audit-log/totals
        /admin/requests/{request_id}/attachments/{attachment_id} /admin/requests/{request_id}/evidence-pack
        /admin/requests/{request_id}/reply/file /admin/tenant""",
    (READ, REVIEW): "/admin/requests/decide /admin/requests/{request_id}/reply",
    (SEE,): """/admin/attested-trainers /admin/datasets /admin/datasets/{dataset_id} /admin/datasets/{dataset_id}/live
        /admin/models /admin/models/{model_id} /admin/models/{model_id}/canary-tests /admin/models/{model_id}/exports
        /admin/models/{model_id}/live /admin/models/{model_id}/quality /admin/models/{model_id}/versions
        /admin/networks /admin/networks/{network_id} /admin/runs /admin/runs/live /admin/runs/{run_id}
        /admin/runs/{run_id}/live /admin/systems /admin/trainers""",
    (SEE, CHANGE): "/admin/datasets/new /admin/models/new",
    (ACCOUNT,): """/admin/accounting/datasets/{dataset_id} /admin/calculator /admin/calculator/{name}
        /admin/certificates/{certificate_id}.json /admin/certificates/{certificate_id}.jws /admin/identities
        /admin/ledger /admin/ledger/head.json /admin/ledger/ledger.jsonl /admin/models/{model_id}/ledger
        /admin/models/{model_id}/rehearsals/{rehearsal_id} /admin/models/{model_id}/rehearsals/{rehearsal_id}/live
        /admin/requests/{request_id}/bundle.json /admin/requests/{request_id}/preview
        /admin/requests/{request_id}/systems /admin/runs/queue /admin/runs/queue/live /admin/system-tasks/overdue""",
    (SEE, ACCOUNT): """/admin/models/{model_id}/curve /admin/models/{model_id}/plan
        /admin/models/{model_id}/rehearsals /admin/models/{model_id}/what-if""",
    (ADMIN,): "/admin/keys /admin/keys/{key_id} /admin/people /admin/people/{user_id} /admin/webhook-secret",
    (OPERATOR,): "/admin/settings /admin/tenants",
}
SCOPES = {path: needed for needed, paths in TABLE.items() for path in paths.split()}
"""Scopes that the page or file at each address needs together; the admin scope includes all others but the
operator's."""
FORMS: dict[str, tuple[Scope, ...]] = {
    "/admin/audit-log/verify": (REVIEW,),
    "/admin/datasets/new": (SEE, CHANGE),
    "/admin/deliveries/{delivery_id}/replay": (ADMIN,),
    "/admin/keys": (ADMIN,),
    "/admin/ledger/verify": (ACCOUNT,),
    "/admin/models/new": (SEE, CHANGE),
    "/admin/models/new/preview": (SEE, CHANGE),
    "/admin/models/{model_id}/audit": (CHANGE,),
    "/admin/models/{model_id}/ledger/verify": (ACCOUNT,),
    "/admin/models/{model_id}/relearn": (CHANGE,),
    "/admin/models/{model_id}/retire": (CHANGE,),
    "/admin/people": (ADMIN,),
    "/admin/requests/{request_id}/attachments/{attachment_id}/delete": (REVIEW,),
    "/admin/tenant/policy": (ADMIN,),
    "/admin/tenants": (OPERATOR,),
}
"""Scopes that each form needs whose permission is checked before its fields are read."""
BEFORE_LOGIN = {"/admin/login", "/admin/login/code", "/admin/welcome", "/admin/oidc", "/admin/oidc/return"}


def all_but(scope: Scope) -> set[Scope]:
    """Return the scopes without this one and without those that include it or cannot be granted without it."""
    return {*Scope} - {scope, ADMIN} - ({REVIEW} if scope is ACCOUNT else set())


def test_each_page_needs_its_scopes(
    somebody_with: Callable[..., Browser], new_dataset: Callable[..., Any], new_model: Callable[..., Any], forget: Any
) -> None:
    """Each page opens for a key with the scopes of the table, and is refused if one of them is missing. The same holds
    for forms. The menu shows each key exactly the entries that the key may open in full."""
    dataset = new_dataset()["id"]
    ids = {"dataset_id": dataset, "model_id": new_model(dataset)["id"], "request_id": forget("p1")["id"]}
    assert SCOPES.keys() == {*addresses.paths()} - BEFORE_LOGIN

    def at(path: str) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], "x"), path)

    keys: dict[frozenset[Scope], Browser] = {}

    def with_scopes(scopes: set[Scope]) -> Browser:
        granted = frozenset(scopes | ({ACCOUNT} if REVIEW in scopes else set()) or {Scope.AGENT})
        if granted not in keys:
            keys[granted] = somebody_with(*granted)
        return keys[granted]

    for table, ask in ((SCOPES, Browser.get), (FORMS, Browser.post)):
        for path, needed in table.items():
            assert ask(with_scopes({*needed}), at(path)).status_code != 403, path
            for scope in needed:
                assert ask(with_scopes(all_but(scope)), at(path)).status_code == 403, (path, scope)
    in_full = SCOPES | {"/admin": (READ,), "/admin/overview": (ACCOUNT,), "/admin/accounting": (ACCOUNT,)}
    for scope in (READ, SEE, ACCOUNT, ADMIN, OPERATOR):
        page = with_scopes({scope}).get("/admin/nowhere").text
        shown = set(re.findall(r'<li><a href="(/admin[^"]*)"', page))
        allowed = {*Scope} - {OPERATOR} if scope is ADMIN else {scope}
        assert shown == {entry.path for entry in entries() if {*in_full[entry.path]} <= allowed}, scope
