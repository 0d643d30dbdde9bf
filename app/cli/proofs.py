"""Commands that verify certificates by themselves, without the service."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.output import console, in_words, new_group
from app.errors import CertificateInvalid
from lethe.values import Guarantee

certificate = new_group("What was signed.")
commands = new_group()
commands.add_typer(certificate, name="certificate")


@certificate.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: FILE.jwks.json")] = None,
) -> None:
    """Verify certificates offline: the signature, and every number recomputed from the statement alone."""
    from lethe import verification

    keys = key_set_in(jwks or Path(f"{file}.jwks.json"))
    for compact, beside in _certificates_in(file):
        verified = verification.verify(compact, keys)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        statement = verified.statement
        console.print(
            f"[green]valid[/]  {statement['certificate_id']}  request {statement['request']['id']}"
            f"  model {statement['model']['id']} version {statement['model']['version']}  key {verified.key_id[:12]}"
        )
        for guarantee in verified.guarantees:
            console.print(f"       {_in_words(guarantee)}")
        console.print(f"       {'audit':<10}  {in_words(statement['audit'])}")


def key_set_in(file: Path) -> Any:
    """The public keys in a file. Raises `CertificateInvalid`."""
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
    return f"{guarantee.notion:<10}  epsilon <= {guarantee.epsilon:.4g} at delta = {guarantee.delta:.3g}"
