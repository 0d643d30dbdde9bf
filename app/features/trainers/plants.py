"""Extension socket `PLANTS`: features that add rows to training runs, measure their losses, and may block publication.

A feature lists its plants as `PLANTS` in its module `app.features.<name>.plants`. Before a training run, each plant
receives the run's input and returns additional rows to train on. They are in `rows.arrow`, in random order among
people's rows, but not in `holdout.arrow`, on which metrics are computed; nothing tells the trainer which rows are
planted. Once the command has run, and before anything is published, `judge` gets a function that returns the losses of
any rows with the same columns under the new artefacts, computed by the trainer's `score_command` in the same sandbox.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from app.installations import Installation
from lethe import sockets

Score: TypeAlias = Callable[[pa.Table], npt.NDArray[np.float64]]
"""Function that maps n rows to their n losses, which are finite. Raises `TrainerRefused`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContext:
    """Input of a training run that is about to start. `rows` holds the rows that are present, excluding the holdout,
    with the columns that the trainer sees."""

    tenant_id: str
    table_id: str
    trainer_id: str
    training_id: str
    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantVerdict:
    """Verdict of a plant. If `code` is set, the training run fails with that code, and nothing is published. `report`
    is JSON without personal data, and is kept with the run."""

    code: str | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Additional rows to train on, with the same schema as the context's rows, and the judge of the result."""

    rows: pa.Table
    judge: Callable[[Score], PlantVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Plant provided by a feature. `plant` returns None if it adds no rows to a run. It is not called for trainers
    without a `score_command`."""

    name: str
    plant: Callable[[Installation, TrainingContext], Planted | None]


def installed() -> tuple[Plant, ...]:
    return sockets.plugs("app.features", "plants", "PLANTS")
