"""Evidence in plain language: what certificates prove and do not prove, and the results of runs' canary tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from app.api import accounting, calls, datasets, models, runs
from app.features.canary_tests import endpoints as canary_tests
from app.features.custody import endpoints as custody
from app.features.desk import glossary, languages, lists, rendering as pages, wording
from app.features.desk.forms import OptionalPositive, OptionalProbability, checked, text
from app.features.desk.request_context import Form, RequestContext, TheContext
from app.features.insight import endpoints as insight
from app.features.suppressions import endpoints as suppressions
from lethe.contract import certificates, problems
from lethe.contract.runs import AuditOut, RunOut
from lethe.features.suppressions.contract import ConsentIn
from lethe.proof.canary_test import CanaryPlan
from lethe.proof.guarantees import Notion

router = pages.new_router()

_MAX_RUNS = 60
_MAX_VERSIONS = 500
_PER_PAGE = 10
"""Datasets per page. The browser requests each dataset's account when the dataset scrolls into view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryTestInWords:
    """Canary test of a run, in words and as numbers for gauges.

    `wrong` lists the findings that refuted the run. `noise_off` and `visits_off` are z-scores, computed with `squares`
    and `groups` degrees of freedom. `share` is the proved epsilon divided by the certified one, capped at 4/3.
    """

    audit: AuditOut
    wrong: list[str]
    setup: str
    guessed: str
    squares: int
    noise_off: float
    groups: int
    visits_off: float | None
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInWords:
    """Certificate in words. `numbers` pairs each guarantee with a comparison.

    `is_weak`: whether the target is weaker than the default bounds. `relation` explains how the epsilons in the
    heading, the canary test and the numbers relate.
    """

    certificate: certificates.CertificateOut
    headline: str
    proves: list[str]
    does_not: list[str]
    numbers: list[tuple[certificates.GuaranteeOut, str]]
    is_weak: bool
    relation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedRun:
    """Run with its canary test, the version that it published (if any), and the proved share of the certified ε."""

    run: RunOut
    audit: AuditOut
    version: int | None
    share: float


def findings(audit: AuditOut) -> str:
    """Return the names of the findings that refuted a run."""
    return ", ".join(glossary.labels("findings").get(finding, finding) for finding in audit.findings)


def canary_test_in_words(audit: AuditOut) -> CanaryTestInWords:
    guesses, lanes = audit.guesses, audit.lanes
    groups = CanaryPlan(lanes=lanes, steps_before=audit.steps_before, steps=audit.steps).groups
    squares = lanes - (0 if audit.visits is None else groups)
    setup = languages.gettext("{canaries}, each worth {records}, and {controls}.").format(
        canaries=wording.count(guesses.members, "canary", "canaries"),
        records=wording.count(audit.records, "worst-case record", "worst-case records"),
        controls=wording.count(guesses.nonmembers, "control", "controls"),
    )
    if audit.steps_before:
        when = languages.gettext("They were there for {before}, and gone in the {steps} of this run.").format(
            before=wording.count(audit.steps_before, "step", "steps"), steps=wording.number(audit.steps)
        )
    else:
        when = languages.gettext("They were there in all {steps} of this run.").format(
            steps=wording.count(audit.steps, "step", "steps")
        )
    return CanaryTestInWords(
        audit=audit,
        wrong=[glossary.labels("refutations").get(finding, finding) for finding in audit.findings],
        setup=f"{setup} {when}",
        guessed=languages.gettext(
            "Recognised as present: {right} of {members} canaries that were, and {wrong} of {nonmembers} that were not."
        ).format(
            right=wording.number(guesses.true_positives),
            members=wording.number(guesses.members),
            wrong=wording.number(guesses.false_positives),
            nonmembers=wording.number(guesses.nonmembers),
        ),
        squares=squares,
        noise_off=_deviation(audit.squares, squares),
        groups=groups,
        visits_off=None if audit.visits is None else _deviation(audit.visits, groups),
        share=min(4 / 3, _proved_share(audit)),
    )


def _deviation(squares: float, freedom: int) -> float:
    """Return the normal deviate with the same tail probability as a chi-squared value (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * freedom)
    return (math.cbrt(squares / freedom) - (1 - spread)) / math.sqrt(spread)


def _proved_share(audit: AuditOut) -> float:
    return audit.epsilon_lower_bound / audit.epsilon if audit.epsilon else 0.0


def between(audit: AuditOut) -> str:
    """Format both bounds as "proved ≤ ε ≤ certified", or only the certified bound if the proved bound exceeds it."""
    certified = f"ε ≤ {wording.at_most(audit.epsilon, 3)}"
    if audit.epsilon_lower_bound > audit.epsilon:
        return certified
    return f"{wording.at_least(audit.epsilon_lower_bound, 3)} ≤ {certified}"


def of_certified_run(audit: AuditOut) -> str:
    """Return the text about a run's canary test that is added to the run's certificate."""
    guesses = audit.guesses
    text = languages.gettext(
        "A canary test attacked the run with {canaries} and {controls}. It proves that of a record at its worst at "
        "least ε = {proved} is left, which of a run that is right is wrong once in {times} times at most; certified is "
        "ε ≤ {certified} for any one."
    )
    if audit.notion == Notion.RELEASE:
        text = languages.gettext(
            "A canary test attacked the run with {canaries} and {controls}. It proves that of a record still in the "
            "data at least ε = {proved} is left, which of a run that is right is wrong once in {times} times at most; "
            "certified is ε ≤ {certified} for any one."
        )
    return text.format(
        canaries=wording.count(guesses.members, "canary", "canaries"),
        controls=wording.count(guesses.nonmembers, "control", "controls"),
        proved=wording.at_least(audit.epsilon_lower_bound, 3),
        times=wording.number(round(1 / audit.error)),
        certified=wording.at_most(audit.epsilon, 3),
    )


def certificate_in_words(certificate: certificates.CertificateOut, *, model: str = "") -> CertificateInWords:
    """Return a certificate in words. The sentences refer to its model as `model` (default: the model's id)."""
    statement = certificate.statement
    guarantees = [insight.guarantee_of(guarantee) for guarantee in statement["guarantees"]]
    unlearning = wording.of_notion(guarantees, Notion.UNLEARNING)
    assert unlearning is not None
    records, steps = statement["request"]["records"], statement["run"]["steps"]
    version = languages.gettext("Version {number} of {model_id}").format(
        number=certificate.version, model_id=model or certificate.model_id
    )
    factor = math.exp(unlearning.epsilon) if unlearning.epsilon < 700 else math.inf
    odds, chance = wording.at_most(factor, 3), wording.at_most(unlearning.delta, 3)
    proves = [
        wording.count(
            records,
            "row of this person was resealed as empty and read back to confirm it before the first step, and the keys "
            "to its previous content were destroyed.",
            "rows of this person were resealed as empty and read back to confirm it before the first step, and the "
            "keys to their previous content were destroyed.",
        ),
        languages.gettext("{version} came out of {steps} on the data without the person.").format(
            version=version, steps=wording.count(steps, "step", "steps")
        ),
        languages.gettext(
            "A reader of that version can hardly tell it from one learned without all people forgotten by then: "
            "anything that it may show is at most {odds} times as probable as there, plus {chance}. "
            "This counts requests that were not chosen by what published versions look like."
        ).format(odds=odds, chance=chance),
        languages.gettext(
            "The best attacker, who knows everything but the noise and has to say which of the two was published, is "
            "right in at most {share} of all cases; a coin is in 50 %."
        ).format(share=accuracy(unlearning)),
        *([of_certified_run(AuditOut(**statement["audit"]))] if statement["audit"] else []),
        languages.gettext(
            "The service checked its own conditions in that run, and signed all of this. Every number follows from "
            "what the certificate itself contains, and every reader can compute it again."
        ),
    ]
    reached = languages.gettext("ε ≤ {epsilon} at δ = {delta}").format(
        epsilon=wording.at_most(unlearning.epsilon), delta=chance
    )
    is_weak = statement["target"]["widened"]
    headline = languages.gettext("{version} has forgotten this person: {reached}")
    if is_weak:
        headline = languages.gettext("{version} meets a target too weak to be called forgetting: {reached}")
    return CertificateInWords(
        certificate=certificate,
        headline=headline.format(version=version, reached=reached),
        is_weak=is_weak,
        proves=proves,
        does_not=[*([_beyond(statement["target"])] if is_weak else []), *map(languages.gettext, statement["limits"])],
        numbers=[(guarantee, glossary.labels("notions")[guarantee.notion]) for guarantee in guarantees],
        relation=_relation(unlearning, AuditOut(**statement["audit"]) if statement["audit"] else None),
    )


def _relation(unlearning: certificates.GuaranteeOut, audit: AuditOut | None) -> str:
    """Explain how a certificate's epsilons relate to each other."""
    texts = [
        languages.gettext(
            "ε ≤ {epsilon} in the heading is the bound to quote: it covers all people forgotten by then."
        ).format(epsilon=wording.at_most(unlearning.epsilon))
    ]
    if audit is not None:
        text = languages.gettext("The canary test is about one record in this run alone, and found {bounds}.")
        texts.append(text.format(bounds=between(audit)))
    texts.append(languages.gettext("The table compares the same version in other ways; each row has an ε of its own."))
    return " ".join(texts)


def accuracy(guarantee: certificates.GuaranteeOut) -> str:
    """Return the best attacker's accuracy as a percentage, rounded up."""
    return f"{wording.at_most(100 * guarantee.best_attacker_accuracy, 3)} %"


def _beyond(target: dict[str, Any]) -> str:
    return languages.gettext(
        "That the person is forgotten: this tenant's policy was widened, and lets the model's target be ε = {epsilon} "
        "at δ = {delta}, beyond ε = {largest_epsilon} at δ = {largest_delta} (one over the dataset's slots)."
    ).format(
        epsilon=wording.given(target["epsilon"]),
        delta=wording.given(target["delta"]),
        largest_epsilon=wording.given(target["largest_epsilon"]),
        largest_delta=wording.number(target["largest_delta"]),
    )


@router.get("/certificates/{certificate_id}.json")
def download_certificate(context: TheContext, certificate_id: str) -> Response:
    """Download a certificate as the API returns it."""
    certificate = context.ask(accounting.get_certificate, certificate_id=certificate_id)
    return pages.json_file(f"{certificate.id}.json", certificate)


@router.get("/certificates/{certificate_id}.jws")
def download_jws(context: TheContext, certificate_id: str) -> Response:
    """Download a certificate's signed text (JWS)."""
    certificate = context.ask(accounting.get_certificate, certificate_id=certificate_id)
    return pages.file(f"{certificate.id}.jws", certificate.jws, "application/jose")


@router.post("/certificates/{certificate_id}/verify")
def verify_certificate(context: TheContext, certificate_id: str) -> Response:
    """Verify a certificate's signature and recompute its numbers."""
    certificate, verdict, fault = None, None, None
    try:
        certificate = context.ask(accounting.get_certificate, certificate_id=certificate_id)
        verdict = context.ask(accounting.verify_certificate, body=certificates.CertificateIn(jws=certificate.jws))
    except (problems.CertificateDamaged, problems.CertificateInvalid) as error:
        fault = error
    about = {"certificate_id": certificate_id, "request_id": certificate and certificate.request_id}
    return context.page("requests/verdict.html", status=200, **about, verdict=verdict, error=fault)


@router.post("/models/{model_id}/audit")
def audit_model(context: TheContext, model_id: str) -> Response:
    """Request a canary test, which trains on many canaries and forgets them, separately from the model's data."""
    context.ask(canary_tests.audit, model_id=model_id)
    return pages.see(f"{pages.ROOT}/models/{model_id}", done="audit")


@router.get("/models/{model_id}/canary-tests")
def show_canary_tests(context: TheContext, model_id: str, cursor: calls.Cursor = None) -> Response:
    """Plot the proved and certified bounds for one record, run by run, and list the runs, worst first."""
    model = context.ask(models.get_model, model_id=model_id)
    page = context.ask(runs.list_runs, model_id=model_id, limit=_MAX_RUNS, cursor=cursor)
    versions = context.ask(models.list_versions, model_id=model_id, limit=_MAX_VERSIONS).items
    oldest_first = tested_runs(page.items[::-1], {version.run_id: version.number for version in versions})
    return context.page(
        "models/canary_tests.html",
        model=model,
        tests=worst_first(oldest_first),
        plot=plot_of(oldest_first),
        next_cursor=page.next_cursor,
        cursor=cursor,
    )


def tested_runs(runs: Sequence[RunOut], versions: Mapping[str, int]) -> list[TestedRun]:
    """Return the runs that have a canary test, in the given order. `versions` maps run ids to published versions."""
    return [
        TestedRun(run=run, audit=run.audit, version=versions.get(run.id), share=_proved_share(run.audit))
        for run in runs
        if run.audit is not None
    ]


def worst_first(tests: Sequence[TestedRun]) -> list[TestedRun]:
    """Sort refuted runs first, then by the proved share of the certified epsilon, highest first."""
    return sorted(tests, key=lambda test: (not test.audit.findings, -test.share))


def plot_of(tests: Sequence[TestedRun]) -> dict[str, Any]:
    """Return the plot of proved and certified bounds, run by run, in the format that `dashboard.js` draws."""
    return {
        "columns": [
            languages.gettext("run"),
            languages.gettext("certified, at most"),
            languages.gettext("proved, at least"),
        ],
        "rows": [[place, test.audit.epsilon, test.audit.epsilon_lower_bound] for place, test in enumerate(tests, 1)],
        "names": [_title(test) for test in tests],
        "ticks": [[place, _tick(test)] for place, test in enumerate(tests, 1)],
        "x": "",
        "y": languages.gettext("ε of one record"),
        "log": False,
        "height": 280,
    }


def _title(test: TestedRun) -> str:
    kind, day = wording.run_kind(test.run.kind), f"{test.run.started_at:%Y-%m-%d}"
    if not test.version:
        return f"{kind}, {day}"
    return languages.gettext("{kind}, version {version}, {day}").format(kind=kind, version=test.version, day=day)


def _tick(test: TestedRun) -> str:
    return f"v{test.version}" if test.version else languages.inside(wording.run_kind(test.run.kind))


@router.get("/accounting")
def list_accounts(
    context: TheContext, place: lists.ThePlace, epsilon: OptionalPositive = None, delta: OptionalProbability = None
) -> Response:
    """List datasets, each with its account for a budget of `epsilon` and `delta`."""
    page = context.ask_if_allowed(datasets.list_datasets, limit=_PER_PAGE, cursor=place.cursor)
    return context.page("accounting/list.html", page=page, place=place, query=_query(epsilon, delta))


@router.get("/accounting/datasets/{dataset_id}")
def show_account(
    context: TheContext, dataset_id: str, epsilon: OptionalPositive = None, delta: OptionalProbability = None
) -> Response:
    """Show the budget spent on one record, and how much of a given budget remains."""
    account = context.ask(
        insight.get_dataset_account, dataset_id=dataset_id, adaptive_epsilon=epsilon, adaptive_delta=delta
    )
    names = {share.model_id: _model_name(context, share.model_id) for share in account.models}
    return context.page("accounting/dataset.html", account=account, names=names, query=_query(epsilon, delta))


def _model_name(context: RequestContext, model_id: str) -> str:
    """Return a model's name, or its id if the caller may not read models."""
    model = context.ask_if_allowed(models.get_model, model_id=model_id)
    return model.name if model else model_id


def _query(epsilon: float | None, delta: float | None) -> dict[str, float]:
    return {name: value for name, value in (("epsilon", epsilon), ("delta", delta)) if value is not None}


@router.get("/ledger")
def show_ledger(context: TheContext) -> Response:
    """Show the available actions on the ledger. The signed head can be downloaded but is not displayed."""
    context.require(custody.get_ledger_head)
    return context.page("ledger/one.html")


@router.post("/ledger/verify")
def verify_ledger(context: TheContext) -> Response:
    """Recompute every hash and number of the ledger."""
    return context.page("ledger/verdict.html", verdict=context.ask(custody.verify_whole_ledger))


@router.get("/ledger/head.json")
def download_head(context: TheContext) -> Response:
    """Download the ledger's signed head, to be stored out of reach of anyone who could forge the ledger."""
    return pages.json_file("ledger-head.json", context.ask(custody.get_ledger_head))


@router.get("/ledger/ledger.jsonl")
def download_ledger(context: TheContext) -> Response:
    """Download the whole ledger, for offline verification."""
    return context.ask(custody.export_ledger)


@router.get("/suppressions")
def list_suppressions(context: TheContext, place: lists.ThePlace) -> Response:
    """List suppressions with their datasets, newest first."""
    return _list(context, place)


@router.post("/suppressions/search")
def search_suppressions(context: TheContext, form: Form) -> Response:
    """List a person's suppressions. The id is sent in the body, hashed in memory, and stored nowhere."""
    return _list(context, lists.PagePosition(), subject_id=_consent(form).subject_id)


@router.post("/suppressions/lift")
def lift_suppressions(context: TheContext, form: Form) -> Response:
    """Lift a person's suppressions after they have consented again."""
    lifted = context.ask(suppressions.lift_suppressions, body=_consent(form)).num_lifted
    return _list(context, lists.PagePosition(), lifted=lifted)


def _consent(form: Form) -> ConsentIn:
    return checked(ConsentIn, subject_id=text(form, "subject_id"), reason="consent_given")


def _list(
    context: RequestContext, place: lists.PagePosition, *, subject_id: str | None = None, lifted: int | None = None
) -> Response:
    filters = {} if subject_id is None else {"subject_id": subject_id}
    return context.page(
        "suppressions.html",
        **context.listing(suppressions.list_suppressions, place, "suppression", "suppressions", **filters),
        may_lift=context.may(suppressions.lift_suppressions),
        may_open=context.may(datasets.get_dataset),
        is_search=subject_id is not None,
        lifted=lifted,
    )
