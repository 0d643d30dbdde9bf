"""Commands that verify by themselves, without the service: certificates, the ledger and the audit log."""

import heapq
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import at_most, console, in_words, new_group
from app.config import Settings
from app.errors import AuditCorrupt, CertificateInvalid, DatabaseUnreadable, TenantUnknown
from lethe.values import Guarantee

certificate = new_group("What was signed.")
ledger = new_group("What was accounted for.")
audit = new_group("Who did what.")
commands = new_group()
for name, group in (("certificate", certificate), ("ledger", ledger), ("audit", audit)):
    commands.add_typer(group, name=name)


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
    for compact, beside in _certificates_in(file):
        verified = verification.verify(compact, keys, max_epsilon=max_epsilon, max_delta=max_delta)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        statement = verified.statement
        console.print(
            f"[green]valid[/]  {statement['certificate_id']}  request {statement['request']['id']}"
            f"  model {statement['model']['id']} version {statement['model']['version']}  key {verified.key_id[:12]}"
        )
        for guarantee in verified.guarantees:
            console.print(f"       {_in_words(guarantee)}")
        if statement["target"]["widened"]:
            console.print(f"       {'target':<10}  {_widened(statement['target'])}")
        console.print(f"       {'audit':<10}  {in_words(statement['audit'])}")


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


def _certificates_in(file: Path) -> list[tuple[str, Any]]:
    """Each JWS of a file, of which there is at least one, with the statement that stands beside it, if any."""
    try:
        text = file.read_text()
        if not text.lstrip().startswith("{"):
            return [(text, None)]
        document = json.loads(text)
        found = [(one["jws"], one.get("statement")) for one in document.get("certificates", [document])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CertificateInvalid(f"{file} holds neither a compact JWS nor JSON with a 'jws'.") from error
    if not found or not all(isinstance(compact, str) for compact, _ in found):
        raise CertificateInvalid(f"{file} holds no certificate.")
    return found


def _in_words(guarantee: Guarantee) -> str:
    accuracy = f"best attacker right {at_most(100 * guarantee.best_attacker_accuracy, 3)} % of the time"
    epsilon, delta = at_most(guarantee.epsilon), at_most(guarantee.delta, 3)
    return f"{guarantee.notion:<10}  epsilon <= {epsilon} at delta = {delta}, {accuracy}"


def _widened(target: dict[str, Any]) -> str:
    return (
        f"widened to epsilon = {target['epsilon']:.6g}, delta = {target['delta']:.6g}: weaker than epsilon = "
        f"{target['largest_epsilon']:.6g}, delta = {target['largest_delta']:.3g}, and not to be called forgotten"
    )
