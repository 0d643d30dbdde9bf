"""Operations on rehearsals, which forget people drawn at random on a scratch copy and measure the effect."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract import models, operation, problems
from lethe.contract.fields import Answer, Body, PageOut, Paging, example
from lethe.contract.problems import Conflict, NotFound
from lethe.contract.sets import ClosedSet, Scope


class RehearsalUnknown(NotFound, title="There is no such rehearsal"):
    template = "Model {model_id} has no rehearsal {rehearsal_id!r}."


class RehearsalPending(Conflict, title="A rehearsal of the dataset's models has not ended yet"):
    template = "Rehearsal {rehearsal_id} of model {model_id} is {status}; wait until it has ended."


class RehearsalDone(Conflict, title="The live version or its rows have been rehearsed"): ...


class RehearsalTooLarge(Conflict, title="The rehearsal would forget more people than the dataset can spare"): ...


class RehearsalStatus(ClosedSet):
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    OUTDATED = "outdated"
    """Completed, but its report was deleted: a person was erased since whose row may have been measured."""
    FAILED = "failed"
    CANCELLED = "cancelled"


MIN_PEOPLE = 10
MAX_PEOPLE = 1000
LIMITS = (
    "Statistics of people, with no noise added: no certificate covers them, and no accountant counts them. They say "
    "how this model forgets such people on average, and prove nothing about anybody."
)


class RehearsalIn(Body):
    model_config = example(people=25)

    people: Annotated[int, Field(ge=MIN_PEOPLE, le=MAX_PEOPLE)] = Field(
        default=25,
        description="Number of people to draw: at most half of the people of the dataset, leaving at least 20 others.",
    )


class MeasuredOut(Answer):
    """Set of people under one model. Each number is a mean over rows, one drawn at random per person, with two
    significant digits; accuracies are whole per cents."""

    rows: int = Field(description="Number of rows, one per person; two significant digits.")
    loss: float = Field(description="Mean unweighted loss per row under the model's objective, averaged over labels.")
    accuracy: float | None = Field(description="Share of correct predictions or labels; null for a target.")
    mean_absolute_error: float | None = Field(description="Mean absolute error in target units; null without a target.")


class SetsOut(Answer):
    forget: MeasuredOut = Field(description="Measurements of the people who were drawn.")
    retain: MeasuredOut = Field(description="Measurements of half of the other people, at most 5,000, drawn at random.")
    test: MeasuredOut | None = Field(
        description="Measurements of half of the people of the evaluation dataset, at most 5,000, drawn at random; "
        "null without such a dataset, with fewer than 20 people, or if a person was erased meanwhile."
    )


class AttackOut(Answer):
    """Membership attack that guesses from the loss of a row whether the row was learned."""

    auc: float = Field(description="Area under the ROC curve, from 0 to 1; 0.5 for a random guess.")
    standard_error: float = Field(description="Standard error of `auc` (Hanley and McNeil 1982).")


class EffortOut(Answer):
    steps: int = Field(description="Number of steps of the run.")
    passes: float = Field(description="Number of passes of the run over all rows.")
    seconds: float = Field(description="Seconds that the steps took, without measurements.")


class ReportedOut(Answer):
    """One of the three models of a rehearsal."""

    sets: SetsOut = Field(description="Measurements by set of people.")
    attack: AttackOut | None = Field(description="Membership attack on forget and test sets; null without a test set.")
    effort: EffortOut | None = Field(
        description="Effort of the model's run; null for the live version, which needs no run."
    )


class CheckpointOut(Answer):
    """Scratch copy after a number of steps of forgetting."""

    steps: int = Field(description="Number of steps of forgetting so far.")
    forget: MeasuredOut = Field(description="Measurements of the people who were drawn.")
    retain: MeasuredOut = Field(description="Measurements of the other people.")


class RehearsalReport(Answer):
    version: int = Field(description="Number of the live version from which the rehearsal started.")
    way: Literal["unlearn", "relearn"] = Field(
        description="Planned way to forget these records; relearn if unlearning would be no cheaper."
    )
    before: ReportedOut = Field(description="Live version, which learned from all people.")
    forgotten: ReportedOut = Field(description="Copy of the live version that forgot the people who were drawn.")
    relearned: ReportedOut = Field(
        description="Second copy, which learned from scratch without the people who were drawn."
    )
    curve: list[CheckpointOut] = Field(
        description="Checkpoints along the steps of forgetting, beginning with the live version."
    )


class RehearsalOut(Answer):
    id: str = Field(description="ID of the rehearsal.")
    model_id: str = Field(description="ID of the model.")
    people: int = Field(description="Number of people to draw.")
    status: RehearsalStatus = Field(description="Status of the rehearsal.")
    run_id: str | None = Field(description="ID of the rehearsal's run; null before it starts.")
    progress: models.ProgressOut | None = Field(description="Progress of the rehearsal's run; null unless running.")
    report: RehearsalReport | None = Field(
        description="Results; null until completed, and again once a person of the datasets is erased."
    )
    limits: str = Field(description="Explanation of what the results show and what they do not prove.")
    error_code: str | None = Field(description="Error code; null if the rehearsal did not fail.")
    asked_at: datetime.datetime = Field(description="Time of the request for the rehearsal.")
    finished_at: datetime.datetime | None = Field(description="Time at which the rehearsal ended; null until then.")


_REHEARSALS = operation.ResourceOperations("Models", "/v1/models/{model_id}/rehearsals", problems.ModelUnknown)

ASK = _REHEARSALS.of_one(
    "rehearse",
    "POST",
    scope=Scope.MODELS_WRITE,
    takes=RehearsalIn,
    gives=RehearsalOut,
    status=202,
    repeat="keyed",
    problems=(
        problems.ModelNotLive,
        problems.ModelRetired,
        RehearsalPending,
        RehearsalDone,
        RehearsalTooLarge,
    ),
    does="Draw people at random who did not ask to be forgotten, forget them on a scratch copy of the live version, "
    "learn another copy without them, measure all three models, and destroy both copies. No record is kept of who was "
    "drawn, and the model stays unchanged. The same rows are measured to completion once, whichever model is "
    "rehearsed.",
)
LIST = _REHEARSALS.of_one(
    "list_rehearsals",
    "GET",
    scope=Scope.ACCOUNTING_READ,
    query=Paging,
    gives=PageOut[RehearsalOut],
    does="List the rehearsals of a model, newest first.",
)
GET = _REHEARSALS.of_two(
    "get_rehearsal",
    "GET",
    "/{rehearsal_id}",
    scope=Scope.ACCOUNTING_READ,
    gives=RehearsalOut,
    problems=(RehearsalUnknown,),
    does="Return the progress of a rehearsal or its results: accuracy and loss on the forget, retain and test "
    "sets, a membership attack, and the effort.",
)
