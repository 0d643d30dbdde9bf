"""A request as an officer's case: what to do next, and why it waits, in sentences."""

from markupsafe import Markup

from app.dashboard.languages import gettext
from app.dashboard.pages import ROOT
from app.dashboard.wording import duration, legal, moment, number
from lethe.contract.deletion_requests import DeletionRequestOut
from lethe.contract.request_previews import ModelToForgetOut
from lethe.contract.sets import ClockState, RequestStatus, WaitReason


def next_step(request: DeletionRequestOut, *, zone: str, may_reply: bool) -> Markup:
    """The officer's next step, or that there is none. `zone`: of the policy, in which the law counts days; `may_reply`:
    the reply is shown to them."""
    reply = _reply(request) if may_reply else Markup("")
    due = legal(request.clock.deadline, zone)
    match request.status:
        case RequestStatus.RECEIVED | RequestStatus.IN_REVIEW if request.clock.state is ClockState.PAUSED:
            return _sentence(gettext("establish who the person is; then approve or reject. The clock is paused."))
        case RequestStatus.RECEIVED | RequestStatus.IN_REVIEW:
            return _sentence(gettext("approve or reject it; it is due {due}."), due=due)
        case RequestStatus.ACCEPTED if request.held_until and not request.completed_at:
            held = gettext("none. It can be cancelled until {until}; a worker takes it up after that. It is due {due}.")
            return _sentence(held, until=moment(request.held_until), due=due)
        case RequestStatus.ACCEPTED:
            return _sentence(gettext("none. A worker takes it up by itself; it is due {due}."), due=due)
        case RequestStatus.RUNNING:
            running = gettext("none. The rows are being erased, and models forget them; it is due {due}.")
            return _sentence(running, due=due)
        case RequestStatus.COMPLETED:
            return _sentence(gettext("tell the person what was done. {reply}"), reply=reply)
        case RequestStatus.REJECTED:
            return _sentence(gettext("tell the person why, and that they may complain. {reply}"), reply=reply)
        case _:
            return _sentence(gettext("none. The request has ended."))


def _sentence(text: str, **values: Markup) -> Markup:
    """A text of the catalogue, which may not bring tags, with values that do."""
    return Markup.escape(text).format(**values)


def _reply(request: DeletionRequestOut) -> Markup:
    return Markup('<a href="{}/requests/{}/reply">{}</a>').format(ROOT, request.id, gettext("Prepare the reply"))


def waits(model: ModelToForgetOut) -> Markup:
    """The reason why a model has not forgotten yet, and when it will have at the latest."""
    return Markup("{}{}{}").format(_why(model), _until(model), _takes(model))


def _until(model: ModelToForgetOut) -> Markup:
    return _sentence(gettext(", at the latest {until}"), until=moment(model.until)) if model.until else Markup("")


def _takes(model: ModelToForgetOut) -> str:
    if model.seconds is None:
        return ""
    return gettext("; a run takes about {duration}").format(duration=duration(model.seconds))


def _why(model: ModelToForgetOut) -> str:
    match model.reason:
        case None:
            return gettext("nothing holds it up")
        case WaitReason.IN_REVIEW:
            return gettext("waits for the decision")
        case WaitReason.GRACE:
            return gettext("may still be cancelled")
        case WaitReason.BATCH:
            waiting = number(model.waiting)
            if model.batch is None:
                return gettext("waits for a batch: {waiting} requests so far").format(waiting=waiting)
            of_batch = gettext("waits for a batch: {waiting} of {batch} requests so far")
            return of_batch.format(waiting=waiting, batch=number(model.batch))
        case WaitReason.QUEUED:
            return gettext("is next for a worker")
        case WaitReason.RUN_UNDER_WAY:
            return gettext("waits for the run under way")
        case WaitReason.DELAYED:
            return gettext("waits for another attempt, because a run failed")
        case WaitReason.BUDGET_SPENT:
            return gettext("waits for room in the budget of the dataset: retire the model")
        case WaitReason.DAMAGED:
            return gettext("waits until damaged rows of the dataset are repaired")
        case _:
            return str(model.reason)
