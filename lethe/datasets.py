"""`client.datasets`: rows that models learn from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lethe.arguments import Upload
from lethe.contract import additions, datasets, encodings
from lethe.contract.fields import Positive
from lethe.methods import H, Resource, call, pages, upload, upload_one


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class MoreRows(Upload):
    """Rows for slots of forgotten people, encoded as the dataset is; its models learn again from scratch.

    `suppressed`: what to do about rows of people who asked to be forgotten. Refused, they raise `SubjectSuppressed`.
    """

    suppressed: Literal["refuse", "skip"] = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
class NewRows(Upload):
    """Rows from a .csv, .parquet or .npz file or a frame (pandas, polars, Arrow), by the public schema (JSON, or its
    file); `name`: default the file's.

    `classes`: the names of the classes, in the order of the labels 0, 1, ...: for npz without a schema, and where the
    schema does not list the values of the label. `target`: for npz without a schema whose y are numbers, their public
    range, {"min": 0, "max": 100}. `network_id`: the public network whose features of these
    numbers are the rows. `suppressed`: what to do about rows of people who asked to be forgotten. Refused, they raise
    `SubjectSuppressed`. `adaptive_epsilon`, `adaptive_delta`: the dataset's budget, fixed for good.
    """

    name: str | None = None
    schema: Mapping[str, Any] | Path | None = None
    classes: Sequence[str] | None = None
    target: Mapping[str, Any] | None = None
    network_id: str | None = None
    suppressed: Literal["refuse", "skip"] = "refuse"
    adaptive_epsilon: Positive | None = None
    adaptive_delta: Annotated[float, Field(gt=0, lt=1)] | None = None

    def fields(self) -> dict[str, str]:
        """The fields of the form."""
        given = {
            "name": Path(self.file_name).stem if self.name is None else self.name,
            "suppressed": self.suppressed,
            "schema": self.schema.read_text()
            if isinstance(self.schema, Path)
            else self.schema and json.dumps(self.schema),
            "classes": None if self.classes is None else json.dumps(list(self.classes)),
            "target": None if self.target is None else json.dumps(self.target),
            "network_id": self.network_id,
            "adaptive_epsilon": self.adaptive_epsilon,
            "adaptive_delta": self.adaptive_delta,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


class Datasets(Resource[H]):
    upload = upload(datasets.UPLOAD, NewRows)
    list = pages(datasets.LIST)
    get = call(datasets.GET)
    retire = call(datasets.RETIRE)
    recheck = call(datasets.RECHECK, timeout_seconds=600.0)
    subject = call(datasets.SUBJECT)
    add = upload_one(additions.ADD, MoreRows)
    addition = call(additions.ADDITION)
    additions = pages(additions.ADDITIONS)
    encodings = call(encodings.LIST)
