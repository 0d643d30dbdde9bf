"""Audits in plain words: what a run's canaries showed, beside what the accountant certifies of it."""

import math
from dataclasses import dataclass

from fastapi import Response

from app.api import models
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.pages import ROOT
from app.dashboard.request_context import TheContext
from app.dashboard.wording import at_least, at_most, count, number
from lethe.contract.runs import AuditOut
from lethe.proof.audit import AuditPlan
from lethe.proof.guarantees import Notion

router = pages.new_router()

_REFUTES = {
    "guarantee": marked("Canaries were told apart better than the certified bound allows."),
    "noise": marked("The noise is not what it should be: too much of it, too little, or drawn badly."),
    "forgetting": marked("The canaries are not where so many steps should have left them."),
    "schedule": marked("Batches were not read in their turn, or steps were not as many or as long as they should be."),
}

_FINDINGS = {
    "guarantee": marked("its guarantee"),
    "noise": marked("its noise"),
    "forgetting": marked("its forgetting"),
    "schedule": marked("its schedule"),
}


def findings(audit: AuditOut) -> str:
    """Name what refuted a run, in a few words."""
    return ", ".join(gettext(_FINDINGS.get(one, one)) for one in audit.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInWords:
    """An audit and what it says. `wrong`: what refuted the run; `noise_off` and `visits_off`: standard deviations from
    what was to be expected, `squares` and `groups`; `share`: of what is certified, proved, a third more at most."""

    audit: AuditOut
    wrong: list[str]
    what: str
    guessed: str
    squares: int
    noise_off: float
    groups: int
    visits_off: float | None
    share: float


def in_words(audit: AuditOut) -> AuditInWords:
    guesses, lanes = audit.guesses, audit.lanes
    groups = AuditPlan(lanes=lanes, steps_before=audit.steps_before, steps=audit.steps).groups
    squares = lanes - (0 if audit.visits is None else groups)
    what = gettext("{canaries}, each worth {records}, and {controls}.").format(
        canaries=count(guesses.members, "canary", "canaries"),
        records=count(audit.records, "worst-case record", "worst-case records"),
        controls=count(guesses.nonmembers, "control", "controls"),
    )
    if audit.steps_before:
        when = gettext("They were there for {before}, and gone in the {steps} of this run.").format(
            before=count(audit.steps_before, "step", "steps"), steps=number(audit.steps)
        )
    else:
        when = gettext("They were there in all {steps} of this run.").format(steps=count(audit.steps, "step", "steps"))
    return AuditInWords(
        audit=audit,
        wrong=[gettext(_REFUTES.get(finding, finding)) for finding in audit.findings],
        what=f"{what} {when}",
        guessed=gettext(
            "Told to be there: {right} of {members} canaries that were, and {wrong} of {nonmembers} that were not."
        ).format(
            right=number(guesses.true_positives),
            members=number(guesses.members),
            wrong=number(guesses.false_positives),
            nonmembers=number(guesses.nonmembers),
        ),
        squares=squares,
        noise_off=_off(audit.squares, squares),
        groups=groups,
        visits_off=None if audit.visits is None else _off(audit.visits, groups),
        share=min(4 / 3, audit.epsilon_lower_bound / audit.epsilon) if audit.epsilon else 0.0,
    )


def _off(squares: float, freedom: int) -> float:
    """Number of standard deviations by which a normal number is off that is as unlikely as this chi-squared one (Wilson
    and Hilferty)."""
    spread = 2 / (9 * freedom)
    return (math.cbrt(squares / freedom) - (1 - spread)) / math.sqrt(spread)


def between(audit: AuditOut) -> str:
    """Text on one line: what is proved and what is certified; the latter alone where a run was refused for more."""
    certified = f"ε ≤ {at_most(audit.epsilon, 3)}"
    if audit.epsilon_lower_bound > audit.epsilon:
        return certified
    return f"{at_least(audit.epsilon_lower_bound, 3)} ≤ {certified}"


def of_certified_run(audit: AuditOut) -> str:
    """Text that an audit adds to a certificate of the run that it was of."""
    guesses = audit.guesses
    said = gettext(
        "A canary test attacked the run with {canaries} and {controls}. It proves that of a record at its worst at "
        "least ε = {proved} is left, which of a run that is right is wrong once in {times} times at most; certified is "
        "ε ≤ {certified} for any one."
    )
    if audit.notion == Notion.RELEASE:
        said = gettext(
            "A canary test attacked the run with {canaries} and {controls}. It proves that of a record still in the "
            "data at least ε = {proved} is left, which of a run that is right is wrong once in {times} times at most; "
            "certified is ε ≤ {certified} for any one."
        )
    return said.format(
        canaries=count(guesses.members, "canary", "canaries"),
        controls=count(guesses.nonmembers, "control", "controls"),
        proved=at_least(audit.epsilon_lower_bound, 3),
        times=number(round(1 / audit.error)),
        certified=at_most(audit.epsilon, 3),
    )


@router.post("/models/{model_id}/audit")
def audit_model(context: TheContext, model_id: str) -> Response:
    """Have many canaries learned and forgotten, apart from the model's data."""
    context.ask(models.audit, model_id=model_id)
    return pages.see(f"{ROOT}/models/{model_id}", done="audit")
