"""Commands about signed statements: certificates are verified locally, without the service, and ledgers are saved."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lethe.cli.derived import GROUPS, CommandCall, made
from lethe.cli.gateway import at_most, console, in_words, show
from lethe.cli.options import OptionShape
from lethe.client import files
from lethe.contract.certificates import CertificateVerdictOut
from lethe.contract.problems import CertificateInvalid

if TYPE_CHECKING:
    from lethe.verification.ledgers import OfTenant


class GuaranteeStatement(Protocol):
    """Signed guarantee of one model, or joint guarantee of several."""

    @property
    def notion(self) -> str: ...
    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def best_attacker_accuracy(self) -> float: ...


@GROUPS["certificates"].app.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: FILE.jwks.json")] = None,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Refuse what guarantees less of forgetting (unlearning, deletion)")
    ] = None,
    max_delta: Annotated[float | None, typer.Option(help="Likewise")] = None,
) -> None:
    """Verify certificates offline: the signatures, and every number recomputed from the statements alone.

    Exits with 1 unless every certificate is valid and meets the given limits, all are about the request that the file
    names, and the joint guarantee follows from them.
    """
    from lethe import verification

    keys = key_set_in(jwks or Path(f"{file}.jwks.json"))
    verified = verification.verify_file(_text_of(file), keys, max_epsilon=max_epsilon, max_delta=max_delta)
    for verdict in verified.verdicts:
        _print(verdict)
    if verified.joint and len(verified.joint.models) > 1:
        console.print(f"[green]joint[/]  of {len(verified.joint.models)} models, their noise independent")
        for guarantee in verified.joint.guarantees:
            console.print(f"       {_in_words(guarantee)}")


@made("certificates.verify", OptionShape(omit=("jws",)))
def certificate_verdict(
    call: CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
) -> None:
    """Let the gateway verify certificates with the keys of its installation; `verify` needs no trust in it."""
    from lethe.verification import proof_files

    for part in proof_files.parse(_text_of(file)).parts:
        show(call.client.certificates.verify(part.jws, **call.arguments))


@made("ledger.export")
def ledger_export(
    call: CommandCall, to: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write it")]
) -> None:
    """Write the whole ledger to a file, and beside it the public keys to verify it with offline (`TO.jwks.json`)."""
    files.write(to, call())
    keys = Path(f"{to}.jwks.json")
    keys.write_text(json.dumps(call.client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")


@GROUPS["ledger"].app.command("verify")
def ledger_verify(
    export: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="An exported ledger")],
    head: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A signed head that was kept elsewhere")
    ] = None,
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: EXPORT.jwks.json")] = None,
) -> None:
    """Recompute every hash and every number of an exported ledger offline, and compare it with its signed head."""
    verify_export(export, head=head, jwks=jwks)


def verify_export(export: Path, *, head: Path | None, jwks: Path | None) -> None:
    """Verify an export and print the result. Raises `LedgerCorrupt`, `LedgerRestored`, `CertificateInvalid`."""
    from lethe import verification

    keys = key_set_in(jwks or Path(f"{export}.jwks.json"))
    print_reports([verification.verify_ledger(export, keys, kept=head.read_text() if head else None)])


def print_reports(reports: "Sequence[OfTenant]") -> None:
    """Print the results of verifying ledgers, one per tenant."""
    entries, models = sum(row.report.entries for row in reports), sum(row.report.models for row in reports)
    console.print(f"[green]valid[/]  {entries} entries of {models} models")
    for row in reports:
        for model_id, head in row.report.heads.items():
            console.print(f"       {model_id}  {head}")
    for row in reports:
        if row.links:
            agrees = f", {row.certificates} certificates agree" if row.certificates else ""
            console.print(f"       {row.tenant_id}  signed up to link {row.signed} of {row.links}{agrees}  {row.head}")
        for fact in row.restored:
            console.print(
                f"       {row.tenant_id}  restored from a backup ({fact['backup_id']}), link {fact['sequence']}"
            )


def key_set_in(file: Path) -> Any:
    """Return the public keys in a file. Raises `CertificateInvalid`."""
    if not file.exists():
        raise CertificateInvalid(f"There is no {file}: name the issuer's public keys with --jwks.")
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise CertificateInvalid(f"{file} is not a JSON Web Key Set.") from error


def _text_of(file: Path) -> str:
    """Return the text of a proof file. Raises `CertificateInvalid`."""
    try:
        return file.read_text(encoding="utf-8")
    except ValueError as error:
        raise CertificateInvalid(f"{file} is not UTF-8.") from error


def _print(verified: CertificateVerdictOut) -> None:
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
    console.print(f"       {'canary test':<11} {in_words(statement['audit'])}")


def _in_words(guarantee: GuaranteeStatement) -> str:
    accuracy = f"best attacker right {at_most(100 * guarantee.best_attacker_accuracy, 3)} % of the time"
    epsilon, delta = at_most(guarantee.epsilon), at_most(guarantee.delta, 3)
    return f"{guarantee.notion:<10}  epsilon <= {epsilon} at delta = {delta}, {accuracy}"


def _widened(target: dict[str, Any]) -> str:
    return (
        f"widened to epsilon = {target['epsilon']:.6g}, delta = {target['delta']:.6g}: weaker than epsilon = "
        f"{target['largest_epsilon']:.6g}, delta = {target['largest_delta']:.3g}, and not to be called forgotten"
    )
