"""Commands that verify by themselves, without the service: certificates, and the ledger."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import console, new_group
from app.config import Settings
from app.errors import CertificateInvalid, DatabaseUnreadable
from app.privacy.guarantees import Guarantee

certificate = new_group("What was signed.")
ledger = new_group("What was accounted for.")
commands = new_group()
for name, group in (("certificate", certificate), ("ledger", ledger)):
    commands.add_typer(group, name=name)


@certificate.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: FILE.jwks.json")] = None,
) -> None:
    """Verify certificates offline: the signature, and every number recomputed from the statement alone."""
    from app.accounting import certificates

    jwks = jwks or Path(f"{file}.jwks.json")
    if not jwks.exists():
        raise CertificateInvalid(f"There is no {jwks}: name the issuer's public keys with --jwks.")
    try:
        keys = json.loads(jwks.read_text())
    except (ValueError, RecursionError) as error:
        raise CertificateInvalid(f"{jwks} is not a JSON Web Key Set.") from error
    for compact, beside in _certificates_in(file):
        verified = certificates.verify(compact, keys)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        statement = verified.statement
        console.print(
            f"[green]valid[/]  {statement['certificate_id']}  request {statement['request']['id']}"
            f"  model {statement['model']['id']} version {statement['model']['version']}  key {verified.key_id[:12]}"
        )
        for guarantee in verified.guarantees:
            console.print(f"       {_in_words(guarantee)}")


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
    return f"{guarantee.notion:<10}  epsilon <= {guarantee.epsilon:.4g} at delta = {guarantee.delta:.3g}"
