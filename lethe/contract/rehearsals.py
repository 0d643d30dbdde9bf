"""Rehearsals: people drawn at random, who did not ask, are forgotten on a scratch copy, and it is measured what that
does."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract.fields import Answer, Body, PageOut, Paging, example
from lethe.contract.models import ProgressOut
from lethe.contract.operation import Resource, of_one, of_two
from lethe.contract.problems import (
    IdempotencyConflict,
    ModelNotLive,
    ModelRetired,
    ModelUnknown,
    RehearsalDone,
    RehearsalPending,
    RehearsalTooLarge,
    RehearsalUnknown,
)
from lethe.contract.sets import RehearsalStatus, Scope

LEAST_PEOPLE = 10
MOST_PEOPLE = 1000
LIMITS = (
    "Statistics of people, with no noise added: no certificate covers them, and no accountant counts them. They say "
    "how this model forgets such people on average, and prove nothing about anybody."
)


class RehearsalIn(Body):
    model_config = example(people=25)

    people: Annotated[int, Field(ge=LEAST_PEOPLE, le=MOST_PEOPLE)] = Field(
        default=25,
        description="People to draw at random: at most half of the dataset's, and 20 others are left.",
    )


class MeasuredOut(Answer):
    """A set of people under one model. Each number is a mean over rows, one of each person, drawn at random, of two
    significant digits; an accuracy is in whole per cents."""

    rows: int = Field(description="One of each person; two significant digits.")
    loss: float = Field(description="The objective's own loss of a row, unweighted; of several labels, their mean.")
    accuracy: float | None = Field(description="Of several labels, the share that is right. null: of a target.")
    mean_absolute_error: float | None = Field(description="In the units of the target; null where there is none.")


class SetsOut(Answer):
    forget: MeasuredOut = Field(description="Of the people who were drawn.")
    retain: MeasuredOut = Field(description="Of those who were not: half, or 5,000 of them, drawn at random.")
    test: MeasuredOut | None = Field(
        description="Of the evaluation dataset, half of its people likewise; null: there is none, or of fewer than 20."
    )


class AttackOut(Answer):
    """The area under the ROC curve of guessing by its loss that a row was learned: 0.5 is a coin."""

    auc: float
    standard_error: float = Field(description="Hanley and McNeil 1982.")


class EffortOut(Answer):
    steps: int
    passes: float = Field(description="Over all rows.")
    seconds: float = Field(description="Of its steps, without what was measured meanwhile.")


class ReportedOut(Answer):
    """One of the three models of a rehearsal. `attack`: null without a test set; `effort`: null of the live
    version, for which nothing ran."""

    sets: SetsOut
    attack: AttackOut | None
    effort: EffortOut | None


class CheckpointOut(Answer):
    """The scratch copy after so many steps of forgetting."""

    steps: int
    forget: MeasuredOut
    retain: MeasuredOut


class RehearsalReport(Answer):
    version: int = Field(description="The live version from which it went on.")
    way: Literal["unlearn", "relearn"] = Field(
        description="How the planner would forget so many records; relearn where going on would be no cheaper."
    )
    before: ReportedOut = Field(description="The live version, which learned from everybody.")
    forgotten: ReportedOut = Field(description="The scratch copy that forgot them.")
    relearned: ReportedOut = Field(description="Another that learned from scratch without them.")
    curve: list[CheckpointOut] = Field(description="Along the steps of forgetting, from the live version on.")


class RehearsalOut(Answer):
    id: str
    model_id: str
    people: int
    status: RehearsalStatus
    run_id: str | None = Field(description="The run that makes it, or made it.")
    progress: ProgressOut | None = Field(description="Of the run under way.")
    report: RehearsalReport | None = Field(
        description="null until it is completed, and again once somebody of its datasets is erased."
    )
    limits: str = Field(description="Says what the numbers are not.")
    error_code: str | None
    asked_at: datetime.datetime
    finished_at: datetime.datetime | None


_REHEARSALS = Resource("Models", "/v1/models/{model_id}/rehearsals")

ASK = of_one(
    _REHEARSALS.operation(
        "rehearse",
        "POST",
        scope=Scope.MODELS_WRITE,
        takes=RehearsalIn,
        gives=RehearsalOut,
        status=202,
        keyed=True,
        problems=(
            ModelUnknown,
            ModelNotLive,
            ModelRetired,
            RehearsalPending,
            RehearsalDone,
            RehearsalTooLarge,
            IdempotencyConflict,
        ),
        does="Draw people at random who did not ask, forget them on a scratch copy of the live version, learn another "
        "without them, measure all three, and destroy both copies. Nothing says who was drawn, and the model stays as "
        "it is. Each version is rehearsed to its end once.",
    )
)
LIST = of_one(
    _REHEARSALS.operation(
        "list_rehearsals",
        "GET",
        scope=Scope.ACCOUNTING_READ,
        query=Paging,
        gives=PageOut[RehearsalOut],
        problems=(ModelUnknown,),
        does="The rehearsals of a model, newest first.",
    )
)
GET = of_two(
    _REHEARSALS.operation(
        "get_rehearsal",
        "GET",
        "/{rehearsal_id}",
        scope=Scope.ACCOUNTING_READ,
        gives=RehearsalOut,
        problems=(ModelUnknown, RehearsalUnknown),
        does="How far a rehearsal is, or what it showed: accuracy and loss on forget set, retain set and test set, a "
        "membership attack, and what it took.",
    )
)
