"""Commands about what was signed: certificates are verified here, without the service, and ledgers are saved."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lethe import files
from lethe.cli.derived import GROUPS, Asked, made
from lethe.cli.options import Shape
from lethe.cli.output import at_most, console, in_words, show
from lethe.contract.certificates import CertificateVerdictOut
from lethe.contract.problems import CertificateInvalid

if TYPE_CHECKING:
    from lethe.verification.ledgers import OfTenant


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


@GROUPS["certificates"].app.command("verify")
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

    keys = key_set_in(jwks or Path(f"{file}.jwks.json"))
    found = _signed_in(file)
    statements = []
    for compact, beside in found.signed:
        verified = verification.verify(compact, keys, max_epsilon=max_epsilon, max_delta=max_delta)
        if beside is not None and beside != verified.statement:
            raise CertificateInvalid("The statement beside the JWS is not the signed one.")
        _print(verified)
        statements.append(verified.statement)
    _verify_joint([one for one in statements if "evidence" in one], stated=found.joint)


@made("certificates.verify", Shape(omit=("jws",)))
def certificate_verdict(
    asked: Asked,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
) -> None:
    """Let the gateway verify certificates, by the keys of its installation; who does not believe it uses `verify`."""
    for compact, _ in _signed_in(file).signed:
        show(asked.client.certificates.verify(compact, **asked.given))


@made("ledger.export")
def ledger_export(asked: Asked, to: Annotated[Path, typer.Argument(dir_okay=False, help="Where to write it")]) -> None:
    """Write the whole ledger to a file, and beside it the public keys to verify it with offline (`TO.jwks.json`)."""
    files.write(to, asked())
    keys = Path(f"{to}.jwks.json")
    keys.write_text(json.dumps(asked.client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")


@GROUPS["ledger"].app.command("verify")
def ledger_verify(
    export: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="An exported ledger")],
    head: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A signed head that was kept elsewhere")
    ] = None,
    jwks: Annotated[Path | None, typer.Option(help="The issuer's public keys; default: EXPORT.jwks.json")] = None,
) -> None:
    """Recompute every hash and every number of an exported ledger offline, and hold it against its signed head."""
    verify_export(export, head=head, jwks=jwks)


def verify_export(export: Path, *, head: Path | None, jwks: Path | None) -> None:
    """Say what was verified of an export. Raises `LedgerCorrupt`, `LedgerRestored`, `CertificateInvalid`."""
    from lethe import verification

    keys = key_set_in(jwks or Path(f"{export}.jwks.json"))
    tell([verification.verify_ledger(export, keys, kept=head.read_text() if head else None)])


def tell(found: "Sequence[OfTenant]") -> None:
    """Say what was verified of ledgers, one for each tenant."""
    entries, models = sum(one.report.entries for one in found), sum(one.report.models for one in found)
    console.print(f"[green]valid[/]  {entries} entries of {models} models")
    if earlier := sum(one.report.not_recomputed for one in found):
        console.print(f"       {earlier} entries of an earlier format: hashes hold, numbers not recomputed")
    for one in found:
        for model_id, head in one.report.heads.items():
            console.print(f"       {model_id}  {head}")
    for one in found:
        if one.links:
            agrees = f", {one.certificates} certificates agree" if one.certificates else ""
            console.print(f"       {one.tenant_id}  signed up to link {one.signed} of {one.links}{agrees}  {one.head}")
        for said in one.restored:
            console.print(
                f"       {one.tenant_id}  restored from a backup ({said['backup_id']}), link {said['sequence']}"
            )


def key_set_in(file: Path) -> Any:
    """The public keys in a file. Raises `CertificateInvalid`."""
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
    """The content of a file: at least one JWS."""
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


def _verify_joint(statements: list[dict[str, Any]], *, stated: Any) -> None:
    """Compose what the certificates of one request guarantee together, of several models, and hold against it what is
    said: of the same models the same, of more models no less."""
    from lethe.proof import guarantees, joint
    from lethe.proof.errors import PrivacyError
    from lethe.proof.guarantees import Evidence

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
