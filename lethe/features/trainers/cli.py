"""Commands about training tables and trainers."""

from pathlib import Path
from typing import Annotated

import typer

from lethe.cli import derived, gateway
from lethe.contract.problems import FieldError, InputInvalid
from lethe.features.trainers.contract import TableOut, TrainerOut, TrainingOut

derived.VERBS["training_tables.upload"] = "create"
derived.add_group("training_tables", "training-table", "Tables with original columns that trainers read.")
derived.add_group("trainers", "trainer", "Models retrained from scratch without a person's data.")


def _line_of_table(table: TableOut) -> str:
    return f"{table.id}  {table.dataset_id}  {table.num_rows}  {table.name}"


def _line_of_trainer(trainer: TrainerOut) -> str:
    state = "retired" if trainer.retired_at else trainer.error_code or ("live" if trainer.live_training_id else "new")
    return f"{trainer.id}  {state:<24}  {trainer.name}"


def _line_of_training(training: TrainingOut) -> str:
    return f"{training.id}  {training.status:<10}  {training.started_at:%F %T}  {training.error_code or ''}".rstrip()


derived.derive("training_tables.list", line=_line_of_table)
derived.derive("trainers.list", line=_line_of_trainer)
derived.derive("trainers.trainings", line=_line_of_training)


@derived.made(
    "trainers.create",
    derived.OptionShape(positional=("name", "table_id"), omit=("files", "lock", "command", "score_command")),
)
def create(
    call: derived.CommandCall,
    folder: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder with the trainer's source files.")],
    lock: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Lock file of the trainer's environment.")],
    train: Annotated[str, typer.Option(help="Python source file that trains.")] = "train.py",
    score: Annotated[str | None, typer.Option(help="Python source file that scores.")] = None,
) -> None:
    """Register a trainer from a folder of source files."""
    try:
        files = {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}
    except UnicodeDecodeError:
        raise InputInvalid("The trainer was not registered.", [FieldError("--folder", "expected texts")]) from None
    call.arguments.update({"files": files, "lock": lock.read_text(), "command": ["python", train]})
    if score is not None:
        call.arguments["score_command"] = ["python", score]
    gateway.show(call())
