"""Endpoints for identity maps."""

from collections import Counter

from fastapi import APIRouter

from app.api import calls, deletion_requests, gateway
from app.db.tables import DeletionRequest
from app.deletion import service as deletion
from app.features.identities import kinds, service
from lethe import sockets
from lethe.contract import fields, problems, sets
from lethe.features.identities import contract

router = APIRouter()
_LISTED = 20


@gateway.serves(router, contract.LOAD)
def load_identities(call: calls.Call, body: contract.IdentitiesIn) -> contract.LoadedOut:
    if body.confirm_joins:
        call.caller.require(sets.Scope.ADMIN)
    links, may_know = _links(call, body), not call.caller.discreet
    with call.writing() as session:
        loaded = service.load(session, links, confirm_joins=body.confirm_joins, may_know=may_know)
        given = [identifier for link in body.links for identifier in link.identifiers]
        for note in sockets.plugs("app.features", "hooks", "IDENTIFIERS_LOADED"):
            note(session, call, zip([ref for link in links for ref, _ in link], given, strict=True))
        call.require_room(session=session)
    return contract.LoadedOut(
        num_links=len(links),
        num_new=loaded.num_new if may_know else None,
        num_joined=loaded.num_joined if may_know else None,
        num_suppressed=len(loaded.suppressed) if may_know else None,
        suppressed=loaded.suppressed[:_LISTED] if may_know else [],
    )


def _links(call: calls.Call, body: contract.IdentitiesIn) -> list[list[tuple[str, str]]]:
    """Return the pseudonyms and kinds of each link's identifiers. Raises `InputInvalid` with an invalid identifier's
    position, but not its text."""
    of_kind = {
        kind: call.references(kind) for kind in sorted({i.kind for link in body.links for i in link.identifiers})
    }
    links, faults = [], []
    for index, link in enumerate(body.links):
        refs = []
        for place, identifier in enumerate(link.identifiers):
            value = identifier.id if identifier.id is not None else f"sha256:{identifier.sha256}"
            try:
                refs.append((of_kind[identifier.kind]([value])[0], identifier.kind))
            except problems.InputInvalid as fault:
                expected = fault.errors[0].message if fault.errors else fault.detail
                faults.append(problems.FieldError(f"links.{index}.identifiers.{place}", expected))
        links.append(refs)
    if faults:
        raise problems.InputInvalid("Nothing was loaded: some identifiers are none of their kind.", faults[:_LISTED])
    return links


@gateway.serves(router, contract.GET)
def get_identities(call: calls.Call) -> contract.IdentitiesOut:
    with call.reading() as session:
        defined = kinds.regions(session, call.caller.tenant_id)
        people, unknown, identifiers, datasets = service.counts(session)
    names = [*contract.BUILT_IN, *sorted(defined.keys() - set(contract.BUILT_IN))]
    return contract.IdentitiesOut(
        num_people=people,
        num_unknown=unknown,
        kinds=[
            contract.KindOut(
                name=name, region=defined.get(name), num_identifiers=identifiers[name], num_datasets=datasets[name]
            )
            for name in names
        ],
    )


@gateway.serves(router, contract.DEFINE_KIND)
def define_identity_kind(call: calls.Call, body: contract.KindIn) -> contract.KindOut:
    with call.writing() as session:
        kinds.define(session, tenant_id=call.caller.tenant_id, name=body.name, region=body.region)
    [kind] = [kind for kind in get_identities(call).kinds if kind.name == body.name]
    return kind


@gateway.serves(router, contract.FORGET)
def forget_identities(call: calls.Call, body: fields.SubjectIn) -> contract.ForgottenOut:
    reference = deletion_requests.subject_ref(call, body)
    with call.writing() as session:
        return contract.ForgottenOut(num_identifiers=service.forget_person(session, reference))


@gateway.serves(router, contract.OF_REQUEST)
def get_request_identities(call: calls.Call, request_id: str) -> contract.RequestIdentitiesOut:
    with call.reading() as session:
        request = deletion.get(session, request_id)
        return _identities_of(request, service.datasets(session, request.dataset_ids))


def _identities_of(request: DeletionRequest, datasets: dict[str, str]) -> contract.RequestIdentitiesOut:
    resolution = request.resolution or {"kind": contract.CUSTOMER_ID, "linked": {}}
    covered = Counter(resolution["linked"].values())
    covered[resolution["kind"]] += 1
    covered[contract.CUSTOMER_ID] += len(request.alias_refs or ())
    reached = [
        contract.ReachedKindOut(
            kind=kind, num_identifiers=count, dataset_ids=[id_ for id_, keyed in datasets.items() if keyed == kind]
        )
        for kind, count in sorted(covered.items())
        if count
    ]
    return contract.RequestIdentitiesOut(
        kind=resolution["kind"],
        identity_unknown=request.unknown_at is not None,
        reached=reached,
        unreached=sorted(set(datasets.values()) - {kind.kind for kind in reached}),
    )


MOUNTS = (gateway.Mount(router=router),)
