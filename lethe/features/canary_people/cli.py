"""Commands that draw canary people for a pipeline outside Lethe, and judge its retraining from a file of losses."""

import hashlib
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lethe.cli import derived, gateway
from lethe.client import files, methods
from lethe.contract.problems import FieldError, InputInvalid

if TYPE_CHECKING:
    import pyarrow as pa

canaries = gateway.new_group("Canary people, which show whether a pipeline really retrains without forgotten people.")
# These commands run on this machine: the client has no resource for them.
derived.GROUPS["canaries"] = derived.Group("canaries", methods.Resource, canaries)

ALARM_STATUS, NO_POWER_STATUS = 1, 3
_SECRET, _STATE = "secret.parquet", "state.json"
_GROUP = "lethe_canary_group"
_FORGOTTEN, _FORGOTTEN_NEVER, _PRESENT, _PRESENT_NEVER = range(4)
"""Values of the column `_GROUP` of the secret file."""
Folder = Annotated[Path, typer.Argument(file_okay=False, help="Folder of the round")]


@canaries.command("draw")
def draw(
    table: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Training rows: .csv or .parquet")],
    folder: Folder,
    number: Annotated[int, typer.Option(help="Number of canaries to plant, 20 to 200")] = 150,
    id_column: Annotated[str | None, typer.Option(help="Column with people's ids; canaries get unused ids")] = None,
    after: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="Folder of the previous round, to be forgotten")
    ] = None,
) -> None:
    """Draw the canaries for the next training run.

    Add the rows in plant.csv to the training rows, delete those in forget.csv, and train. Then score score.csv with the
    new model and judge its losses. Do not give the pipeline the other files.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from lethe.features.canary_people import drawing
    from lethe.proof.errors import PrivacyError

    rows = _read(table)
    if _GROUP in rows.column_names or (id_column is not None and id_column not in rows.column_names):
        raise InputInvalid("The columns do not fit.", [FieldError("id_column", "expected a column of the table")])
    rng = drawing.generator()
    try:
        drawn = drawing.draw(rows, number=number, rng=rng, id_column=id_column)
    except PrivacyError as error:
        raise InputInvalid(str(error)) from error
    groups = [_grouped(drawn.planted, _PRESENT), _grouped(drawn.never, _PRESENT_NEVER)]
    state: dict[str, Any] = {"seed": secrets.randbits(63), "judged": []}
    forgotten = rows.slice(0, 0)
    if after is not None:
        before = pa.parquet.read_table(after / _SECRET)
        old = [_of_group(before, group) for group in (_PRESENT, _PRESENT_NEVER)]
        if old[0].schema != rows.schema:
            raise InputInvalid("The columns do not fit.", [FieldError("table", "expected those of the round before")])
        forgotten = old[0]
        groups += [_grouped(old[0], _FORGOTTEN), _grouped(old[1], _FORGOTTEN_NEVER)]
        state["judged"] = json.loads((after / _STATE).read_text())["judged"]
    joined = pa.concat_tables(groups)
    # The order of the rows to be scored reveals nothing about their groups.
    secret = joined.take(pa.array(rng.permutation(joined.num_rows)))
    folder.mkdir(parents=True, mode=0o700)
    for name, part in (("plant", drawn.planted), ("forget", forgotten), ("score", secret.drop_columns([_GROUP]))):
        pa.csv.write_csv(part, folder / f"{name}.csv")
    pa.parquet.write_table(secret, folder / _SECRET)
    _write(folder / _STATE, state)
    gateway.show(
        {"folder": str(folder), "plant": drawn.planted.num_rows, "forget": forgotten.num_rows, "score": len(secret)}
    )


@canaries.command("judge")
def judge(
    folder: Folder,
    losses: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="One loss a line, in score.csv's order")],
) -> None:
    """Judge a retraining by the new model's losses on score.csv. Exit status: 0 clean, 1 alarm, 3 too little power."""
    import numpy as np
    import pyarrow.parquet

    from lethe.features.canary_people import judging
    from lethe.proof.errors import PrivacyError

    groups = pyarrow.parquet.read_table(folder / _SECRET, columns=[_GROUP]).column(_GROUP).to_numpy()
    content = losses.read_bytes()
    try:
        values = np.array([float(line) for line in content.split()])
    except ValueError:
        raise InputInvalid("The losses are not numbers.", [FieldError("losses", "expected a number a line")]) from None
    if len(values) != len(groups):
        raise InputInvalid(
            "The losses do not fit.", [FieldError("losses", f"expected {len(groups)} numbers, found {len(values)}")]
        )
    state = json.loads((folder / _STATE).read_text())
    digest = hashlib.sha256(content).hexdigest()
    # The same losses are the same test.
    judged = state["judged"] if digest in state["judged"] else [*state["judged"], digest]
    pairs = [(values[groups == group], values[groups == group + 1]) for group in (_FORGOTTEN, _PRESENT)]
    try:
        verdict = judging.judge(
            forgotten=[pair for pair in pairs[:1] if len(pair[0])],
            present=pairs[1],
            test=judged.index(digest) + 1,
            seed=state["seed"],
        )
    except PrivacyError as error:
        raise InputInvalid(str(error)) from error
    _write(folder / _STATE, state | {"judged": judged})
    gateway.show(verdict.to_json())
    status = {judging.CanaryOutcome.ALARM: ALARM_STATUS, judging.CanaryOutcome.NO_POWER: NO_POWER_STATUS}
    raise typer.Exit(status.get(verdict.outcome, 0))


def _read(path: Path) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        return pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    except (pa.ArrowException, OSError):
        raise InputInvalid("The table cannot be read.", [FieldError("table", "expected .csv or .parquet")]) from None


def _grouped(rows: "pa.Table", group: int) -> "pa.Table":
    import pyarrow as pa

    return rows.append_column(_GROUP, pa.array([group] * rows.num_rows, pa.int8()))


def _of_group(secret: "pa.Table", group: int) -> "pa.Table":
    import pyarrow.compute as pc

    return secret.filter(pc.equal(secret.column(_GROUP), group)).drop_columns([_GROUP])


def _write(path: Path, state: dict[str, Any]) -> None:
    with files.opened(path) as file:
        file.write(json.dumps(state).encode())
