"""Commands about systems, their tasks and bundles."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from lethe.cli import commands, derived, gateway
from lethe.features.systems.contract import Grade, SystemOut, TaskOut

derived.add_group("systems", "system", "Systems that were trained on people's data or store it.")
derived.add_group("system_tasks", "task", "Tasks of systems outside Lethe for deletion requests.")


def _line_of(system: SystemOut) -> str:
    state = "retired" if system.retired_at else system.grade
    return f"{system.id}  {system.kind:<6}  {state:<12}  {system.name}"


def _line_of_task(task: TaskOut) -> str:
    due = "overdue" if task.overdue else f"due {task.due_at:%F}"
    return f"{task.id}  {task.status:<12}  {due:<14}  {task.request_id}  {task.system_name}"


derived.derive("systems.list", line=_line_of)
derived.derive("systems.create", derived.OptionShape(positional=("name", "contact", "webhook_url")))
derived.derive("system_tasks.list", line=_line_of_task)


@derived.made("system_tasks.acknowledge", derived.OptionShape(omit=("jws", "evidence_sha256")))
def acknowledge(
    call: derived.CommandCall,
    evidence: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Document that proves the deletion; only its digest is sent"),
    ] = None,
    sign_with: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The system's Ed25519 key, as a private JWK")
    ] = None,
) -> None:
    """Confirm that a system has done its task, using its Ed25519 key or the API key bound to it."""
    from lethe.features.systems import acknowledgements

    digest = hashlib.sha256(evidence.read_bytes()).hexdigest() if evidence else None
    if sign_with is None:
        call.arguments.update({"evidence_sha256": digest} if digest else {})
    else:
        task = call.client.system_tasks.get(*call.ids)
        named = {"id": task.id, "system_id": task.system_id, "request_id": task.request_id}
        by = call.arguments.pop("by", None) or "lethe task acknowledge"
        call.arguments["jws"] = acknowledgements.sign(
            json.loads(sign_with.read_text()), task=named, by=by, evidence_sha256=digest
        )
    gateway.show(call())


def verify_bundle(text: str, jwks: Any, *, max_epsilon: float | None, max_delta: float | None) -> bool:
    """If `text` is a bundle, verify and print it and return True; otherwise return False. Raises `CertificateInvalid`,
    `CertificateBeyondLimits`."""
    from lethe.features.systems import bundle

    if not bundle.is_bundle(text):
        return False
    verified = bundle.verify(text, jwks, max_epsilon=max_epsilon, max_delta=max_delta)
    statement = verified.statement
    gateway.console.print(
        f"[green]valid[/]  bundle of request {statement['request']['id']}  key {verified.key_id[:12]}"
    )
    for line in statement["lines"]:
        system = line["system"]
        key = line["evidence"].get("public_key")
        by = f"  (attested by {key})" if line["grade"] == Grade.RETRAINED_ATTESTED else ""
        gateway.console.print(f"       {line['grade']:<18}  {system['id']}  {system['name']}{by}", markup=False)
    gateway.console.print(f"       {statement['headline']['officer']['en']}", markup=False)
    return True


VERIFY_PROOF: tuple[commands.VerifyProof, ...] = (verify_bundle,)
