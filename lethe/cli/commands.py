"""Commands that do more than print a call's response: deletion requests, administration, training and proofs.

Certificates are verified locally, without the service.
"""

import datetime
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import typer

from lethe import Client, reading, sockets
from lethe.cli.derived import GROUPS, CommandCall, OptionShape, derive, made
from lethe.cli.gateway import Key, Url, at_most, bar, connect, console, in_words, show
from lethe.client import http, methods, resources, waiting
from lethe.contract import api_keys, certificates, problems, tenants
from lethe.contract.models import ModelOut

if TYPE_CHECKING:
    from lethe.verification.ledgers import OfTenant

Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


@made(
    "deletion_requests.create",
    OptionShape(positional=("subject_id",), also={"aliases": "--alias", "dataset_ids": "--dataset-id"}),
)
def request_submit(
    call: CommandCall, wait: Annotated[bool, typer.Option(help="Wait until the request is completed")] = True
) -> None:
    """Request that a person be forgotten everywhere."""
    request = call()
    if wait:
        show_when_over(call.client.deletion_requests, request.id)
    else:
        show(request)


derive(
    "deletion_requests.list",
    line=lambda request: (
        f"{request.id}  {request.status:<9}  {request.outcome or '-':<15}  due {request.clock.deadline:%F}"
        f"  {request.regulation}  {request.source or ''}"
    ).rstrip(),
)


@GROUPS["deletion_requests"].app.command("wait")
def request_wait(request_id: Id, url: Url = None, key: Key = None) -> None:
    """Wait until a request has ended."""
    with connect(url, key) as client:
        show_when_over(client.deletion_requests, request_id)


@made("deletion_requests.proof")
def request_certificate(call: CommandCall, to: Path) -> None:
    """Save a request's certificates, together with the public keys that verify them (`TO.jwks.json`)."""
    to.write_text(json.dumps(reading.to_json(call()), indent=2))
    keys = Path(f"{to}.jwks.json")
    keys.write_text(json.dumps(call.client.certificates.public_keys(), indent=2))
    console.print(f"{to} and {keys}")


tenant = GROUPS["tenants"].app


@made(
    "api_keys.create",
    OptionShape(
        positional=("name",), also={"scopes": "--scope", "own_requests_only": "--own-requests-only/--all-requests"}
    ),
)
def key_create(
    call: CommandCall,
    days: Annotated[int | None, typer.Option(min=1, help="Lifetime in days; default: unlimited")] = None,
) -> None:
    """Create an API key, which is shown once."""
    if days is not None:
        call.arguments["expires_at"] = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    show(call())


def _of_key(key: api_keys.ApiKeyOut) -> str:
    ended = "revoked" if key.revoked_at else f"until {key.expires_at:%F}" if key.expires_at else "in force"
    used = f"used {key.last_used_at:%F}" if key.last_used_at else "never used"
    return f"{key.id}  {ended:<16}  {used:<15}  {','.join(key.scopes)}  {key.name}"


derive("api_keys.list", line=_of_key)
derive("tenants.list", line="{item.id}  {item.created_at:%F}  {item.name}")
derive("tenants.create", OptionShape(positional=("name",)))


@tenant.command("show")
@methods.makes(tenants.GET)
def tenant_show(
    tenant_id: Annotated[str | None, typer.Argument(help="Default: the key's tenant")] = None,
    url: Url = None,
    key: Key = None,
) -> None:
    """Show a tenant and its policy."""
    with connect(url, key) as client:
        show(client.tenants.get(tenant_id) if tenant_id else client.tenants.own())


@tenant.command("set")
@methods.makes(tenants.CHANGE_OWN)
def tenant_set(
    field: Annotated[list[str], typer.Argument(help="NAME=VALUE, such as auto_accept=false; VALUE is JSON or text")],
    url: Url = None,
    key: Key = None,
) -> None:
    """Change fields of the caller's tenant policy; other fields stay unchanged."""
    with connect(url, key) as client:
        show(client.tenants.set_policy(policy=cast(tenants.Policy, dict(map(_field, field)))))


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter("Expected NAME=VALUE, such as auto_accept=false.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


_ENDS_WITHIN = 2.0
"""Seconds to wait for the final poll of an upload."""
WatchUpload = Callable[[Client, str, int, waiting.Progress, threading.Event], None]
"""Report the progress of the upload with this name and number of bytes until the event is set."""
Skip = Annotated[bool, typer.Option(help="Leave out rows of people who asked to be forgotten")]


def _parse_range(text: str) -> dict[str, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter("expected two numbers: --target 0,100", param_hint="--target") from None
    return {"min": low, "max": high}


@made(
    "datasets.upload",
    OptionShape(
        also={"network_id": "--network"},
        omit=("suppressed",),
        parsers={"classes": ("NO,YES", lambda text: text.split(",")), "target": ("MIN,MAX", _parse_range)},
    ),
)
def dataset_create(
    call: CommandCall,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Rows: .csv, .parquet or .npz")],
    counts: Annotated[bool, typer.Option("--counts", help="With --target 0,MAX: targets are counts")] = False,
    skip_suppressed: Skip = False,
) -> None:
    """Upload rows."""
    skip(call, skip_suppressed)
    if counts and "target" not in call.arguments:
        raise typer.BadParameter("expected --target 0,MAX beside it", param_hint="--counts")
    if counts:
        call.arguments["target"] |= {"counts": True}
    with uploading(call.client, file, call.arguments.get("name", file.stem), encoded="network_id" in call.arguments):
        created = call(file)
    show(created)


def skip(call: CommandCall, skip_suppressed: bool) -> None:
    if skip_suppressed:
        call.arguments["suppressed"] = "skip"


@contextmanager
def uploading(client: Client, file: Path, name: str, *, encoded: bool) -> Iterator[None]:
    """Show that a file is being uploaded as `name` and, if a network encodes it, the number of rows processed."""
    watchers: tuple[WatchUpload, ...] = sockets.plugs("lethe.features", "cli", "WATCH_UPLOAD") if encoded else ()
    if not watchers:
        with console.status(f"Uploading {file.name}"):
            yield
        return
    ended = threading.Event()
    with bar() as progress:
        progress("uploading", 0, None)
        arguments = (client, name, file.stat().st_size, progress, ended)
        threads = [threading.Thread(target=watch, args=arguments, daemon=True) for watch in watchers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(timeout=_ENDS_WITHIN)


derive("datasets.list", line="{item.id}  {item.num_records:>9} of {item.num_slots} rows  {item.name}")


@made(
    "models.create",
    OptionShape(
        positional=("dataset_id",), also={"evaluation_dataset_id": "--evaluation-dataset"}, defaults={"name": "model"}
    ),
)
def model_create(
    call: CommandCall, wait: Annotated[bool, typer.Option(help="Wait, with a progress bar, until it is trained")] = True
) -> None:
    """Train a model."""
    created = call()
    if wait:
        show_when_over(call.client.models, created.id)
    else:
        show(created)


derive("models.list", line="{item.id}  {item.status:<10} version {item.live_version}  {item.name}")


@GROUPS["models"].app.command("wait")
def model_wait(model_id: Id, url: Url = None, key: Key = None) -> None:
    """Wait, with a progress bar, until a model is live."""
    with connect(url, key) as client:
        show_when_over(client.models, model_id)


def show_when_over(resource: resources.Models[http.Http] | resources.DeletionRequests[http.Http], id_: str) -> None:
    """Wait for a model or request with a progress bar, then show it; exit with code 1 if a model cannot be served."""
    with bar() as progress:
        result = resource.wait(id_, progress=progress)
    show(result)
    if isinstance(result, ModelOut) and result.status not in resources.SERVED:
        raise typer.Exit(1)


derive(
    "runs.list",
    OptionShape(also={"model_id": "--model"}),
    line=lambda run: (
        f"{run.id}  {run.kind:<7} {run.status:<9} {run.steps_done:>7} of {run.steps_total} steps"
        f"  {in_words(reading.to_json(run.audit))}"
        f"{'' if run.seconds_left is None else f'  about {run.seconds_left:,.0f} s left'}"
    ),
)


def _retires(path: str, destroyed: str) -> None:
    """Add the command `retire`, which takes an id and asks for confirmation."""

    def retire(call: CommandCall, yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False) -> None:
        if not yes:
            typer.confirm(f"Retire {call.ids[0]}? {destroyed} are destroyed for good.", abort=True, err=True)
        show(call())

    made(path)(retire)


_retires("models.retire", "Its weights")
_retires("datasets.retire", "Its rows")


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


class VerifyProof(Protocol):
    """A feature's verifier for its own kind of files (extension socket `VERIFY_PROOF`)."""

    def __call__(self, text: str, jwks: Any, *, max_epsilon: float | None, max_delta: float | None) -> bool:
        """Verify and print a file, and return True; return False for a file of another kind. Raises
        `CertificateInvalid`, `CertificateBeyondLimits`."""


@GROUPS["certificates"].app.command("verify")
def certificate_verify(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A JWS, or JSON that holds some")],
    jwks: Annotated[Path | None, typer.Option(help="Issuer's public keys; default: FILE.jwks.json")] = None,
    max_epsilon: Annotated[
        float | None, typer.Option(help="Maximum epsilon for unlearning and deletion; refuse anything weaker")
    ] = None,
    max_delta: Annotated[float | None, typer.Option(help="Maximum delta, likewise")] = None,
) -> None:
    """Verify certificates offline: the signatures, and every number recomputed from the statements alone.

    Exits with code 1 unless every certificate is valid and meets the given limits, all are about the request that the
    file names, and the joint guarantee follows from them.
    """
    from lethe import verification

    keys, text = key_set_in(jwks or Path(f"{file}.jwks.json")), _text_of(file)
    others: tuple[VerifyProof, ...] = sockets.plugs("lethe.features", "cli", "VERIFY_PROOF")
    if any(verify(text, keys, max_epsilon=max_epsilon, max_delta=max_delta) for verify in others):
        return
    verified = verification.verify_file(text, keys, max_epsilon=max_epsilon, max_delta=max_delta)
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
    """Ask the gateway to verify certificates with its installation's keys; `verify` requires no trust in it."""
    from lethe.verification import proof_files

    for part in proof_files.parse(_text_of(file)).parts:
        show(call.client.certificates.verify(part.jws, **call.arguments))


@GROUPS["ledger"].app.command("verify")
def ledger_verify(
    export: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Exported ledger")],
    head: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Signed head that was kept elsewhere")
    ] = None,
    jwks: Annotated[Path | None, typer.Option(help="Issuer's public keys; default: EXPORT.jwks.json")] = None,
) -> None:
    """Recompute every hash and every number of an exported ledger offline, and compare it with its signed head."""
    verify_export(export, head=head, jwks=jwks)


def verify_export(export: Path, *, head: Path | None, jwks: Path | None) -> None:
    """Verify a ledger export and print the result. Raises `LedgerCorrupt`, `LedgerRestored`, `CertificateInvalid`."""
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
        raise problems.CertificateInvalid(f"There is no {file}: name the issuer's public keys with --jwks.")
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise problems.CertificateInvalid(f"{file} is not a JSON Web Key Set.") from error


def _text_of(file: Path) -> str:
    """Return the text of a proof file. Raises `CertificateInvalid`."""
    try:
        return file.read_text(encoding="utf-8")
    except ValueError as error:
        raise problems.CertificateInvalid(f"{file} is not UTF-8.") from error


def _print(verified: certificates.CertificateVerdictOut) -> None:
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
