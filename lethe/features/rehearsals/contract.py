"""Operations on rehearsals: randomly drawn people are forgotten in a scratch copy, and the effect is measured."""

import datetime
from typing import Annotated, Literal

from pydantic import Field

from lethe.contract import fields, models, operation, problems
from lethe.contract.sets import ClosedSet, Scope


class RehearsalUnknown(problems.NotFound, title="There is no such rehearsal"):
    template = "Model {model_id} has no rehearsal {rehearsal_id!r}."


class RehearsalPending(problems.Conflict, title="A rehearsal of the dataset's models has not ended yet"):
    template = "Rehearsal {rehearsal_id} of model {model_id} is {status}; wait until it has ended."


class RehearsalDone(problems.Conflict, title="The live version or its rows have been rehearsed"): ...


class RehearsalTooLarge(
    problems.Conflict, title="The rehearsal would forget more people than the dataset can spare"
): ...


class RehearsalStatus(ClosedSet):
    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    OUTDATED = "outdated"
    """Completed, but the report was deleted because a person whose row may have been measured was later erased."""
    FAILED = "failed"
    CANCELLED = "cancelled"


MIN_PEOPLE = 10
MAX_PEOPLE = 1000
LIMITS = (
    "Statistics of people, with no noise added: no certificate covers them, and no accountant counts them. They say "
    "how this model forgets such people on average, and prove nothing about anybody."
)


class RehearsalIn(fields.Body):
    model_config = fields.example(people=25)

    people: Annotated[int, Field(ge=MIN_PEOPLE, le=MAX_PEOPLE)] = Field(
        default=25,
        description="Number of people to draw: at most half of the dataset's people, with at least 20 left undrawn.",
    )


class MeasuredOut(fields.Answer):
    """Measurements of one model on a set of people. Each is a mean over rows (one row drawn at random per person),
    rounded to two significant digits; accuracies are rounded to whole percentage points."""

    rows: int = Field(description="Number of measured rows, one per person, rounded to two significant digits.")
    loss: float = Field(description="Mean unweighted loss per row under the model's objective, averaged over labels.")
    accuracy: float | None = Field(description="Fraction of correct predictions or labels; null for regression.")
    mean_absolute_error: float | None = Field(description="Mean absolute error in target units; null for classifiers.")


class SetsOut(fields.Answer):
    forget: MeasuredOut = Field(description="Results on the forget set, the people drawn to be forgotten.")
    retain: MeasuredOut = Field(description="Results on the retain set: up to 5,000 people, a random half of the rest.")
    test: MeasuredOut | None = Field(
        description="Results on the test set: half of the evaluation dataset's people, at most 5,000, drawn at random; "
        "null if there is no evaluation dataset, it has fewer than 20 people, or a person was erased during the run."
    )


class AttackOut(fields.Answer):
    """Membership attack that guesses from a row's loss whether the model was trained on the row."""

    auc: float = Field(description="Area under the ROC curve, from 0 to 1; 0.5 for random guessing.")
    standard_error: float = Field(description="Standard error of `auc` (Hanley and McNeil 1982).")


class EffortOut(fields.Answer):
    steps: int = Field(description="Number of steps in the run.")
    passes: float = Field(description="Number of passes over all rows in the run.")
    seconds: float = Field(description="Time that the steps took, in seconds, excluding measurements.")


class ReportedOut(fields.Answer):
    """Results for one of the three models compared in a rehearsal."""

    sets: SetsOut = Field(description="Results on each set of people.")
    attack: AttackOut | None = Field(description="Membership attack on forget and test sets; null without a test set.")
    effort: EffortOut | None = Field(
        description="Cost of producing the model; null for the live version, which needs no run."
    )


class CheckpointOut(fields.Answer):
    """Measurements of the scratch copy after a given number of unlearning steps."""

    steps: int = Field(description="Number of forgetting steps taken so far.")
    forget: MeasuredOut = Field(description="Results on the forget set.")
    retain: MeasuredOut = Field(description="Results on the retain set.")


class RehearsalReport(fields.Answer):
    version: int = Field(description="Number of the live version that was rehearsed.")
    way: Literal["unlearn", "relearn"] = Field(
        description="Planned way of forgetting the drawn people's records: relearn if unlearning would be no cheaper."
    )
    before: ReportedOut = Field(description="Results of the live version, trained on all people.")
    forgotten: ReportedOut = Field(description="Results of a copy of the live version that forgot the drawn people.")
    relearned: ReportedOut = Field(
        description="Results of a second copy, trained from scratch without the drawn people."
    )
    curve: list[CheckpointOut] = Field(
        description="Results at checkpoints along the forgetting steps, starting with the live version."
    )


class RehearsalOut(fields.Answer):
    id: str = Field(description="ID of the rehearsal.")
    model_id: str = Field(description="ID of the model.")
    people: int = Field(description="Number of people to draw at random.")
    status: RehearsalStatus = Field(description="Status of the rehearsal.")
    run_id: str | None = Field(description="ID of the rehearsal's run; null until it starts.")
    progress: models.ProgressOut | None = Field(description="Progress of the rehearsal's run; null if not in progress.")
    report: RehearsalReport | None = Field(
        description="Results; null until the rehearsal completes, and again once any person in the datasets is erased."
    )
    limits: str = Field(description="Explanation of what the results show and what they do not prove.")
    error_code: str | None = Field(description="Code of the error; null if the rehearsal did not fail.")
    asked_at: datetime.datetime = Field(description="Time at which the rehearsal was requested.")
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
    problems=(problems.ModelNotLive, problems.ModelRetired, RehearsalPending, RehearsalDone, RehearsalTooLarge),
    does="Draw people at random who have not asked to be forgotten, forget them in a temporary copy of the live "
    "version, train another copy without them, measure all three models, and destroy both copies. No record is kept of "
    "who was drawn, and the model is not changed. After a completed rehearsal, further ones on the same rows are "
    "refused, for any model.",
)
LIST = _REHEARSALS.of_one(
    "list_rehearsals",
    "GET",
    scope=Scope.ACCOUNTING_READ,
    query=fields.Paging,
    gives=fields.PageOut[RehearsalOut],
    does="List a model's rehearsals, newest first.",
)
GET = _REHEARSALS.of_two(
    "get_rehearsal",
    "GET",
    "/{rehearsal_id}",
    scope=Scope.ACCOUNTING_READ,
    gives=RehearsalOut,
    problems=(RehearsalUnknown,),
    does="Return a rehearsal's progress or its results: accuracy and loss on the forget, retain and test sets, a "
    "membership attack, and the cost.",
)
