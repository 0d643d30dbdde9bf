"""Agent that erases people from the configured stores and responds to a system's open tasks with signed reports.

The stores' owner runs it next to the stores. If it is killed, it resumes from its journals: a task's journal entries
are removed only after its report has been accepted.
"""

import contextlib
import datetime
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lethe import Client
from lethe.features.stores import erasure, reports, store
from lethe.features.stores.configuration import Configuration
from lethe.features.systems import acknowledgements, contract

_BY = "lethe store run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """Outcome of a task. `grade` is None if the task stays open because of ghosts in `findings` or an `error`."""

    task_id: str
    grade: contract.Grade | None
    findings: Mapping[str, erasure.Finding]
    error: str | None = None


def erase(configuration: Configuration, people: Sequence[Sequence[str]]) -> list[dict[str, erasure.Finding]]:
    """Erase people from all configured stores. Return each person's findings, keyed by store name; call `finish` once
    they have been reported. Raises `StoreError`."""
    by_person: list[dict[str, erasure.Finding]] = [{} for _ in people]
    with store.stopped(configuration.stop, configuration.start):
        for name, store_settings in configuration.stores.items():
            findings = erasure.erase(store_settings, people, journal=configuration.state / f"{name}.json")
            for of_person, finding in zip(by_person, findings, strict=True):
                of_person[name] = finding
    return by_person


def finish(configuration: Configuration, people: Sequence[Sequence[str]]) -> None:
    """Remove people from all stores' journals once their findings have been reported."""
    for name in configuration.stores:
        erasure.finish(configuration.state / f"{name}.json", people)


def grade_of(findings: Mapping[str, erasure.Finding]) -> contract.Grade | None:
    """Return the grade that a person's findings in all stores support; None if any of the person's data remains."""
    if any(finding.ghosts for finding in findings.values()):
        return None
    return max(
        (reports.grade_of(finding.to_json()) for finding in findings.values()), key=contract.STRENGTH.__getitem__
    )


def answer(client: Client, configuration: Configuration) -> Iterator[TaskOutcome]:
    """Erase the people in all of the configured system's open tasks, report on each task, and yield the outcomes.

    A task whose person cannot be identified stays open without holding up other tasks. Raises `StoreError` if a store
    cannot be processed, in which case all tasks stay open.
    """
    key = _key(configuration)
    for mark in sorted(configuration.state.glob("*.reported")):
        # An earlier run was killed before it had removed the reported people from its journals.
        if client.system_tasks.get(mark.stem).status != contract.TaskStatus.OPEN:
            _finish_reported(configuration, mark, json.loads(mark.read_text()))
    tasks, people = [], []
    for task in _due(client, configuration):
        identifiers = _identify(client, configuration, task)
        if identifiers:
            tasks.append(task)
            people.append(identifiers)
        else:
            reason = "person_unknown: the request has no external_id, or no identifier was found for it"
            yield TaskOutcome(task_id=task.id, grade=None, findings={}, error=reason)
    if not tasks:
        return
    for task, person, findings in zip(tasks, people, erase(configuration, people), strict=True):
        grade = grade_of(findings)
        if grade is not None:
            named = {"id": task.id, "system_id": task.system_id, "request_id": task.request_id}
            report = reports.compose(named, [finding.to_json() for finding in findings.values()])
            digest = hashlib.sha256(report.encode()).hexdigest()
            jws = acknowledgements.sign(key, task=named, by=_BY, evidence_sha256=digest)
            mark = configuration.state / f"{task.id}.reported"
            erasure.replace(mark, person)
            with contextlib.suppress(contract.SystemTaskEnded):
                # An officer, or an earlier run that was killed after the call, has ended the task meanwhile.
                client.system_tasks.search_report(task.id, jws=jws, report=report)
            _finish_reported(configuration, mark, person)
        yield TaskOutcome(task_id=task.id, grade=grade, findings=findings)


def _finish_reported(configuration: Configuration, mark: Path, person: Sequence[str]) -> None:
    finish(configuration, [person])
    mark.unlink()


def _key(configuration: Configuration) -> dict[str, str]:
    if configuration.system is None or configuration.sign_with is None:
        raise store.StoreError("configuration_invalid", "Expected system and sign_with in the configuration")
    try:
        return dict(json.loads(configuration.sign_with.read_text()))
    except (OSError, ValueError, TypeError):
        raise store.StoreError("configuration_invalid", "Expected a private JWK in the file sign_with") from None


def _due(client: Client, configuration: Configuration) -> Iterator[contract.TaskOut]:
    """Yield the open tasks whose grace period has ended, leaving out tasks that have just been cancelled."""
    now = datetime.datetime.now(datetime.UTC)
    for task in list(client.system_tasks.list(status=contract.TaskStatus.OPEN, system_id=configuration.system)):
        if task.sent_from <= now and client.system_tasks.get(task.id).status == contract.TaskStatus.OPEN:
            yield task


def _identify(client: Client, configuration: Configuration, task: contract.TaskOut) -> list[str]:
    external_id = client.deletion_requests.get(task.request_id).external_id
    if not external_id:
        return []
    if not configuration.identify:
        return [external_id]
    answer = subprocess.run(  # noqa: S603
        [*configuration.identify, external_id], check=False, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    return [] if answer.returncode else sorted({line.strip() for line in answer.stdout.splitlines() if line.strip()})
