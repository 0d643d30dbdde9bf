"""Planting of canary people, and what happens if a training run still knows an earlier run's canaries.

Each training run gets its own canaries. It must not know the canaries of any earlier run on the table whose artefacts
are live, whichever trainer made them: the new run could have reused their artefacts or rows.
"""

import secrets

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import now
from app.features.canary_people.tables import CanaryRound
from app.features.trainers import columns, plants, sandbox, service, tables
from app.installations import Installation
from app.vault.pieces import Vault
from lethe.features.canary_people import drawing, judging

ALARM = "canary_alarm"
ROWS_PER_CANARY = 10
"""Minimum number of people's rows per canary."""


def plant(installation: Installation, context: plants.TrainingContext) -> plants.Planted | None:
    """Draw canaries for a training run, and return them with the function that judges the run. Return None if the
    trainer uses no canaries or its table is too small.

    Raises:
        TrainerRefused: `canary_alarm` if an earlier run of the trainer raised an alarm.
    """
    with installation.database.reading() as session:
        trainer = session.get_one(tables.Trainer, context.trainer_id)
        rounds = sa.select(CanaryRound.outcome).where(CanaryRound.trainer_id == trainer.id)
        outcomes = [outcome for outcome in session.scalars(rounds) if outcome is not None]
        wanted: int = trainer.specification["canary_people"]
    if judging.CanaryOutcome.ALARM in outcomes:
        raise sandbox.TrainerRefused(ALARM)
    number = min(wanted, context.rows.num_rows // ROWS_PER_CANARY)
    if number < drawing.MIN_PLANTED:
        return None
    group = columns.GROUP if columns.GROUP in context.rows.column_names else None
    drawn = drawing.draw(context.rows, number=number, rng=drawing.generator(), id_column=group)
    content = installation.vault.seal(_packed(drawn))
    with installation.database.writing() as session:
        row = CanaryRound(
            training_id=context.training_id,
            tenant_id=context.tenant_id,
            trainer_id=context.trainer_id,
            drawn_at=now(session),
            key=installation.vault.key_of(content),
            content=content,
        )
        session.add(row)

    def judge(score: plants.Score) -> plants.PlantVerdict:
        return _judge(installation, context, drawn, score, test=len(outcomes) + 1)

    return plants.Planted(rows=drawn.planted, judge=judge)


def _packed(drawn: drawing.Canaries) -> bytes:
    """Return planted and never-planted canaries as one Arrow stream whose metadata has the number of planted rows."""
    joined = pa.concat_tables([drawn.planted, drawn.never])
    return columns.to_bytes(joined.replace_schema_metadata({"planted": str(drawn.planted.num_rows)}))


def _unpacked(content: bytes) -> drawing.Canaries:
    joined = columns.from_bytes(content)
    planted = int(joined.schema.metadata[b"planted"])
    joined = joined.replace_schema_metadata(None)
    return drawing.Canaries(planted=joined.slice(0, planted), never=joined.slice(planted))


def _forgotten(session: Session, vault: Vault, context: plants.TrainingContext) -> list[drawing.Canaries]:
    """Return the canaries of the table's live training runs. Raises `TrainerRefused` if any are unreadable."""
    query = (
        sa.select(CanaryRound)
        .join(tables.Trainer, tables.Trainer.live_id == CanaryRound.training_id)
        .where(tables.Trainer.table_id == context.table_id)
        .order_by(CanaryRound.training_id)
    )
    contents = [service.opened(vault, row.content) for row in session.scalars(query)]
    if None in contents:
        raise sandbox.TrainerRefused("canaries_damaged")
    return [_unpacked(content) for content in contents if content is not None]


def _judge(
    installation: Installation,
    context: plants.TrainingContext,
    drawn: drawing.Canaries,
    score: plants.Score,
    *,
    test: int,
) -> plants.PlantVerdict:
    """Score all canaries in random order, judge the training run, and record the outcome. After an alarm, the trainer's
    live artefacts are also held back."""
    with installation.database.reading() as session:
        forgotten = _forgotten(session, installation.vault, context)
    groups = [table for group in (*forgotten, drawn) for table in (group.planted, group.never)]
    joined = pa.concat_tables(groups)
    order = drawing.generator().permutation(joined.num_rows)
    losses = np.empty(joined.num_rows)
    losses[order] = score(joined.take(pa.array(order)))
    ends = np.cumsum([table.num_rows for table in groups])[:-1]
    pairs = _pairs(np.split(losses, ends))
    verdict = judging.judge(forgotten=pairs[:-1], present=pairs[-1], test=test, seed=secrets.randbits(63))
    with installation.database.writing() as session:
        session.get_one(CanaryRound, context.training_id).outcome = verdict.outcome
        if verdict.outcome is judging.CanaryOutcome.ALARM:
            live_id = session.get_one(tables.Trainer, context.trainer_id).live_id
            if live_id is not None:
                session.get_one(tables.Training, live_id).held = True
    return plants.PlantVerdict(
        code=ALARM if verdict.outcome is judging.CanaryOutcome.ALARM else None, report=verdict.to_json()
    )


def _pairs(parts: list[judging.Losses]) -> list[tuple[judging.Losses, judging.Losses]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


PLANTS: tuple[plants.Plant, ...] = (plants.Plant(name="canary_people", plant=plant),)
