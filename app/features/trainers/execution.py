"""A single training run: a trainer's commands run in the sandbox on the rows that are present."""

import importlib.metadata
import io
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlalchemy as sa

from app.features.trainers import columns, plants, sandbox, service, tables, training
from app.installations import Installation

_RANDOM = secrets.SystemRandom()
_METRICS = "metrics.json"
_MAX_SEED = 2**63
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*==\s*([^\s;\\#]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a training run, not yet published. `findings` holds the plants' reports, keyed by plant name."""

    artefacts: Mapping[str, bytes]
    metrics: Mapping[str, float]
    findings: Mapping[str, Any]
    repeated: bool


def train(installation: Installation, claimed: training.ClaimedTraining, *, look: Callable[[], None]) -> Result:
    """Run the trainer, sometimes twice to check that it is reproducible, and let the plants judge its artefacts. `look`
    is called during the run and may raise an exception to stop it. Raises `TrainerRefused`."""
    specification = claimed.specification
    sandbox.require()
    check_lock(specification["lock"])
    parts = columns.split(_rows(installation, claimed), holdout=specification["holdout"])
    rows, held_out = (columns.for_trainer(part, group_ids=specification["group_ids"]) for part in parts)
    planted = _planted(installation, claimed, rows)
    inputs = {"rows.arrow": columns.to_bytes(columns.mixed([rows, *(extra.rows for extra in planted.values())]))}
    if specification["holdout"]:
        inputs["holdout.arrow"] = columns.to_bytes(held_out)
    run = Commands(specification, seed=secrets.randbelow(_MAX_SEED), look=look)
    outputs = run.train(inputs)
    is_repeated = _RANDOM.randrange(specification["repeat_one_in"]) == 0
    if is_repeated and run.train(inputs) != outputs:
        raise sandbox.TrainerRefused("trainer_not_reproducible")
    artefacts = {name: outputs[f"artefacts/{name}"] for name in specification["artefacts"]}
    metrics = read_metrics(outputs.get(_METRICS), names=specification["metrics"] or ())
    findings: dict[str, Any] = {}
    for name, extra in planted.items():
        verdict = extra.judge(lambda table: run.score(artefacts, table))
        findings[name] = verdict.report
        if verdict.code is not None:
            raise sandbox.TrainerRefused(verdict.code, findings)
    return Result(artefacts=artefacts, metrics=metrics, findings=findings, repeated=is_repeated)


def _planted(
    installation: Installation, claimed: training.ClaimedTraining, rows: pa.Table
) -> dict[str, plants.Planted]:
    """Return the rows that each plant adds to a training run and the function that judges the result, by name."""
    if claimed.specification["score_command"] is None:
        return {}
    context = plants.TrainingContext(
        tenant_id=claimed.tenant_id,
        table_id=claimed.table_id,
        trainer_id=claimed.trainer_id,
        training_id=claimed.training_id,
        rows=rows,
    )
    by_plant = {plant.name: plant.plant(installation, context) for plant in plants.installed()}
    return {name: planted for name, planted in by_plant.items() if planted is not None}


def _rows(installation: Installation, claimed: training.ClaimedTraining) -> pa.Table:
    """Return the rows still present in the training table. Rows of people erased since the claim may be missing."""
    with installation.database.reading() as session:
        query = (
            sa.select(tables.TableBlock)
            .where(tables.TableBlock.table_id == claimed.table_id)
            .order_by(tables.TableBlock.number)
        )
        contents = [service.opened(installation.vault, block.content) for block in session.scalars(query)]
    if not contents or None in contents:
        raise sandbox.TrainerRefused("training_table_damaged")
    return pa.concat_tables([columns.from_bytes(content) for content in contents if content is not None])


def check_lock(lock: str) -> None:
    """Raise `TrainerRefused` (`trainer_environment_differs`) unless the worker's environment has everything that a lock
    file pins, in the same versions. Lines other than `NAME==VERSION` are refused, except comments and hashes."""
    for line in lock.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", "--hash")):
            continue
        pinned = _PINNED.match(line)
        try:
            installed = importlib.metadata.version(pinned[1]) if pinned else ""
            # A pin without a local version matches every local version (PEP 440).
            is_same = pinned is not None and pinned[2] in (installed, installed.partition("+")[0])
        except importlib.metadata.PackageNotFoundError:
            is_same = False
        if not is_same:
            raise sandbox.TrainerRefused("trainer_environment_differs")


def read_metrics(content: bytes | None, *, names: Sequence[str]) -> dict[str, float]:
    """Return only the declared metrics from metrics.json. Raises `TrainerRefused` unless all are finite numbers."""
    try:
        metrics = json.loads(content) if content is not None else {}
        values = {name: metrics[name] for name in names}
        if all(type(value) in (int, float) and math.isfinite(value) for value in values.values()):
            return {name: float(value) for name, value in values.items()}
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
        pass
    raise sandbox.TrainerRefused("trainer_metrics_invalid")


class Commands:
    """The two commands of a trainer, each run in a separate sandbox."""

    def __init__(self, specification: Mapping[str, Any], *, seed: int, look: Callable[[], None]) -> None:
        self._specification = specification
        self._environment = {"LETHE_SEED": str(seed)}
        self._look = look
        self._files = {name: content.encode() for name, content in specification["files"].items()}

    def train(self, inputs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Run the training command on rows.arrow and, with a holdout, holdout.arrow, and return its outputs by path."""
        command, size = self._specification["command"], self._specification["artefacts_mib"] * 2**20
        files = {**self._files, **inputs}
        outputs = [f"artefacts/{name}" for name in self._specification["artefacts"]]
        outputs += [_METRICS] if self._specification["metrics"] else []
        return self._run(command, files, max_bytes=size, folders=["artefacts"], outputs=outputs)

    def score(self, artefacts: Mapping[str, bytes], rows: pa.Table) -> npt.NDArray[np.float64]:
        """Return each row's loss under the artefacts, with shape (n,)."""
        files = self._files | {f"artefacts/{name}": content for name, content in artefacts.items()}
        files["rows.arrow"] = columns.to_bytes(rows)
        size = 8 * rows.num_rows + 2**16
        outputs = self._run(
            self._specification["score_command"], files, max_bytes=size, folders=(), outputs=["losses.npy"]
        )
        try:
            losses = np.load(io.BytesIO(outputs["losses.npy"]), allow_pickle=False)
        except (KeyError, ValueError, OSError, EOFError):
            raise sandbox.TrainerRefused("trainer_losses_invalid") from None
        if losses.shape != (rows.num_rows,) or losses.dtype != np.float64 or not np.isfinite(losses).all():
            raise sandbox.TrainerRefused("trainer_losses_invalid")
        return np.asarray(losses, dtype=np.float64)

    def _run(
        self,
        command: Sequence[str],
        files: Mapping[str, bytes],
        *,
        max_bytes: int,
        folders: Sequence[str],
        outputs: Sequence[str],
    ) -> dict[str, bytes]:
        limits = sandbox.SandboxLimits(
            seconds=self._specification["seconds"],
            memory_bytes=self._specification["memory_mib"] * 2**20,
            processes=self._specification["processes"],
            output_bytes=max_bytes,
        )
        # Threads that spin while waiting take the processor from each other and from all other work.
        threads = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))), "OMP_WAIT_POLICY": "passive"}
        return sandbox.run(
            command,
            files=files,
            environment=self._environment | threads,
            limits=limits,
            folders=folders,
            outputs=outputs,
            look=self._look,
        )
