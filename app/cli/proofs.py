"""Commands that verify by themselves, without the service: certificates, the ledger and the audit log."""

import heapq
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from app.cli.output import at_most, console, in_words, new_group
from app.config import Settings
from app.errors import AuditCorrupt, CertificateInvalid, DatabaseUnreadable, TenantUnknown
from lethe.values import Verdict

certificate = new_group("What was signed.")
ledger = new_group("What was accounted for.")
audit = new_group("Who did what.")
commands = new_group()
for name, group in (("certificate", certificate), ("ledger", ledger), ("audit", audit)):
    commands.add_typer(group, name=name)


class Said(Protocol):
    """A guarantee, of one model or of several."""

    @property
    def notion(self) -> str: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def best_attacker_accuracy(self) -> float: ...


@certificate.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: FILE.jwks.json")] = None,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Refuse what guarantees less of forgetting (unlearning, deletion)")
    ] = None,
    max_delta: Annotated[float | None, typer.Option(help="Likewise")] = None,
) -> None:
    """Verify certificates offline: the signature, and every number recomputed from the statement alone.

    Exits with 1 unless every certificate holds, and guarantees what is asked for.
    """
    from lethe import verification

    keys = _key_set_in(jwks or Path(f"{file}.jwks.json"))
    found = _signed_in(file)
    statements = []
    for compact, beside in found.signed:
        verified = verification.verify(compact, keys, max_epsilon=max_epsilon, max_delta=max_delta)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        _print(verified)
        statements.append(verified.statement)
    _verify_joint([one for one in statements if "evidence" in one], stated=found.joint)


@ledger.command("verify")
def ledger_verify() -> None:
    """Recompute every hash and every number of the ledger from its entries alone."""
    from sqlalchemy.exc import OperationalError

    from app.accounting import repository, verify
    from app.db import Database

    database = Database(Settings().resolved_database_url())
    try:
        with database.reading() as session:
            entries = repository.all_entries(session)
            report = verify.verify(entries, repository.all_versions(session))
    except OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; is LETHE_DATA_DIR right?") from error
    finally:
        database.close()
    console.print(f"[green]valid[/]  {report.entries} entries of {report.models} models")
    for model_id, head in report.heads.items():
        console.print(f"       {model_id}  {head}")


@audit.command("verify")
def audit_verify(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's log; default: every tenant's")] = None,
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: the data folder's")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The JWS of a checkpoint that was kept elsewhere")
    ] = None,
) -> None:
    """Recompute the audit log of every tenant from its entries alone, and hold it against its signed checkpoints."""
    from joserfc.jwk import KeySet
    from sqlalchemy.exc import OperationalError

    from app.audit import checkpoints, repository, verify
    from app.db import Database
    from app.keys import Keys

    settings = Settings()
    signing_key = settings.data_dir / "keys" / "signing.jwk"
    if jwks is None and not signing_key.exists():
        raise CertificateInvalid(f"There is no {signing_key}: name the issuer's public keys with --jwks.")
    keys = KeySet.import_key_set(_key_set_in(jwks)) if jwks else KeySet([Keys(signing_key.parent).signing_key])
    kept = checkpoints.kept(checkpoint.read_text()) if checkpoint else None
    database = Database(settings.resolved_database_url(), read_only=True)
    try:
        with database.reading() as session:
            tenant_ids = repository.tenant_ids(session)
            if tenant is not None and tenant not in tenant_ids:
                raise TenantUnknown(f"There is no tenant {tenant!r}.")
            tenant_ids = [tenant] if tenant else tenant_ids
            if kept is not None and kept.tenant_id not in tenant_ids:
                raise AuditCorrupt(f"The checkpoint is about tenant {kept.tenant_id!r}, whose log is not there.")
            for tenant_id in tenant_ids:
                entries = repository.all_entries(session, tenant_id=tenant_id)
                signed = repository.all_checkpoints(session, tenant_id=tenant_id)
                if kept is not None and kept.tenant_id == tenant_id:
                    signed = heapq.merge(signed, [kept], key=lambda one: one.sequence)
                chain = verify.verify(tenant_id, entries, signed, keys)
                console.print(
                    f"[green]valid[/]  {tenant_id}  {chain.entries} entries, signed up to {chain.signed}"
                    f" ({chain.checkpoints} checkpoints)  {chain.head}"
                )
    except OperationalError as error:
        raise DatabaseUnreadable(f"{error.orig}; is LETHE_DATA_DIR right?") from error
    finally:
        database.close()


def _key_set_in(file: Path) -> Any:
    if not file.exists():
        raise CertificateInvalid(f"There is no {file}: name the issuer's public keys with --jwks.")
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise CertificateInvalid(f"{file} is not a JSON Web Key Set.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """`signed`: each JWS with the statement that stands beside it, if any. `joint`: what is said of all of them."""

    signed: list[tuple[str, Any]]
    joint: Any


def _signed_in(file: Path) -> _Found:
    """What a file holds: at least one JWS."""
    try:
        text = file.read_text()
        if not text.lstrip().startswith("{"):
            return _Found(signed=[(text, None)], joint=None)
        document = json.loads(text)
        several = (
            [*document["certificates"], document.get("nothing_held")] if "certificates" in document else [document]
        )
        found = [(one["jws"], one.get("statement")) for one in several if one is not None]
        joint = document.get("joint")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CertificateInvalid(f"{file} holds neither a compact JWS nor JSON with a 'jws'.") from error
    if not found or not all(isinstance(compact, str) for compact, _ in found):
        raise CertificateInvalid(f"{file} holds no certificate.")
    return _Found(signed=found, joint=joint)


def _print(verified: Verdict) -> None:
    statement, key = verified.statement, verified.key_id[:12]
    if "looked" in statement:
        looked, where = statement["looked"], ", ".join(statement["datasets"]) or "no dataset"
        console.print(
            f"[green]valid[/]  nothing held  request {statement['request']['id']}  at {looked['at']}  key {key}"
        )
        console.print(f"       {'where':<10}  {where}", markup=False)
        console.print(f"       {'identity':<10}  {looked['identity_rule']}", markup=False)
        return
    console.print(
        f"[green]valid[/]  {statement['certificate_id']}  request {statement['request']['id']}"
        f"  model {statement['model']['id']} version {statement['model']['version']}  key {key}"
    )
    for guarantee in verified.guarantees:
        console.print(f"       {_in_words(guarantee)}")
    if statement["target"]["widened"]:
        console.print(f"       {'target':<10}  {_widened(statement['target'])}")
    console.print(f"       {'audit':<10}  {in_words(statement['audit'])}")


def _verify_joint(statements: list[dict[str, Any]], *, stated: Any) -> None:
    """Compose what the certificates of one request guarantee together, of several models, and hold against it what is
    said: of the same models the same, of more models no less."""
    from app.privacy import guarantees, joint
    from app.privacy.errors import PrivacyError
    from app.privacy.guarantees import Evidence

    evidences = {one["model"]["id"]: Evidence.from_json(one["evidence"]) for one in statements}
    if len({one["request"]["id"] for one in statements}) != 1 or len(evidences) != len(statements):
        if stated is not None:
            raise CertificateInvalid("The certificates are not of one request and different models: no joint number.")
        return
    composed = joint.of(evidences)
    try:
        if stated is not None and stated["models"] == list(composed.models):
            for one, recomputed in zip(stated["guarantees"], composed.guarantees, strict=True):
                guarantees.confirm("joint", stated=one, recomputed=recomputed.stated())
            person = composed.deletion.stated()
            beside = {name: person[name] for name in ("mu", "epsilon", "delta", "best_attacker_accuracy")}
            guarantees.confirm("joint", stated={name: stated[name] for name in beside}, recomputed=beside)
        elif stated is not None and not (
            set(composed.models) < set(stated["models"]) and stated["mu"] >= composed.deletion.mu
        ):
            raise CertificateInvalid("The joint number leaves out one of these certificates.")
    except PrivacyError as error:
        raise CertificateInvalid(f"{error}.") from error
    except (LookupError, TypeError, ValueError) as error:
        raise CertificateInvalid("The joint number beside the certificates is none.") from error
    if len(evidences) > 1:
        console.print(f"[green]joint[/]  {len(evidences)} models of one request, their noise independent")
        for composed_one in composed.guarantees:
            console.print(f"       {_in_words(composed_one)}")


def _in_words(guarantee: Said) -> str:
    accuracy = f"best attacker right {at_most(100 * guarantee.best_attacker_accuracy, 3)} % of the time"
    epsilon, delta = at_most(guarantee.epsilon), at_most(guarantee.delta, 3)
    return f"{guarantee.notion:<10}  epsilon <= {epsilon} at delta = {delta}, {accuracy}"


def _widened(target: dict[str, Any]) -> str:
    return (
        f"widened to epsilon = {target['epsilon']:.6g}, delta = {target['delta']:.6g}: weaker than epsilon = "
        f"{target['largest_epsilon']:.6g}, delta = {target['largest_delta']:.3g}, and not to be called forgotten"
    )
