"""Resources of a client whose methods make one call each."""

from typing import Literal

from pydantic import Field

from lethe.client.methods import H, Keyed, Resource, call, pages, pieces, upload, upload_one
from lethe.contract import accounting, api_keys, audit_log, datasets, deletion_requests, overview, runs, tenants


class Accounting(Resource[H]):
    """`client.accounting`: remaining influence of people's records. Only the gateway and the accounting service have
    it."""

    model = call(accounting.MODEL)
    dataset = call(accounting.DATASET)
    deletion_request = call(accounting.DELETION_REQUEST)
    ledger = pages(accounting.LEDGER)
    verify_ledger = call(accounting.VERDICT)


class ApiKeys(Resource[H]):
    """`client.api_keys`: API keys and their scopes; all calls need the scope admin.

    A call that creates a key is not repeated automatically: after a lost answer, revoke the key that was never seen.
    """

    create = call(api_keys.CREATE)
    list = pages(api_keys.LIST)
    get = call(api_keys.GET)
    rotate = call(api_keys.ROTATE)
    revoke = call(api_keys.REVOKE)


class AuditLog(Resource[H]):
    """`client.audit_log`: actions and their actors; all calls need the scope admin."""

    list = pages(audit_log.LIST)
    checkpoints = pages(audit_log.CHECKPOINTS)
    verify = call(audit_log.VERIFY)


class _Rows(datasets.RowsIn, Keyed):
    pass


class _Dataset(datasets.TableIn, Keyed):
    name: str | None = Field(default=None, description="Name of the dataset. Default: the file's.")


class Datasets(Resource[H]):
    """`client.datasets`: rows that models learn from."""

    upload = upload(datasets.UPLOAD, _Dataset)
    list = pages(datasets.LIST)
    get = call(datasets.GET)
    retire = call(datasets.RETIRE)
    recheck = call(datasets.RECHECK, timeout_seconds=600.0)
    subject = call(datasets.SUBJECT)
    add = upload_one(datasets.ADD, _Rows)
    addition = call(datasets.ADDITION)
    additions = pages(datasets.ADDITIONS)


class Ledger(Resource[H]):
    """`client.ledger`: all versions of all models in hash-chained entries; `lethe ledger verify` recomputes them."""

    head = call(accounting.HEAD)
    export = pieces(accounting.EXPORT)
    verify = call(accounting.LEDGER_VERDICT)


class Overview(Resource[H]):
    """`client.overview`: the state of a tenant's requests, in numbers."""

    get = call(overview.GET)


class Runs(Resource[H]):
    """`client.runs`: past and present runs of the workers."""

    list = pages(runs.LIST)
    get = call(runs.GET)
    cancel = call(runs.CANCEL)
    queue = call(runs.QUEUE)


class _Consent(deletion_requests.ConsentIn):
    reason: Literal["consent_given"] = "consent_given"


class Suppressions(Resource[H]):
    """`client.suppressions`: people who asked to be forgotten, whose rows are not accepted again."""

    list = pages(deletion_requests.SUPPRESSIONS)
    lift = call(deletion_requests.LIFT, _Consent)


class Tenants(Resource[H]):
    """`client.tenants`: the tenants of an installation (scope operator), and the caller's own policy (scope admin).

    A call that creates a tenant is not repeated automatically: after a lost answer the name is taken, and the key of
    its admin is lost.
    """

    create = call(tenants.CREATE)
    list = pages(tenants.LIST)
    get = call(tenants.GET)
    own = call(tenants.OWN)
    set_policy = call(tenants.CHANGE_OWN)
