"""A request as an officer's case: what to do next, and why it waits, in sentences."""

from markupsafe import Markup

from app.dashboard.pages import ROOT
from app.dashboard.wording import duration, legal, moment
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
            return Markup("establish who the person is; then approve or reject. The clock is paused.")
        case RequestStatus.RECEIVED | RequestStatus.IN_REVIEW:
            return Markup("approve or reject it; it is due {}.").format(due)
        case RequestStatus.ACCEPTED if request.held_until and not request.completed_at:
            return Markup("none. It can be cancelled until {}; a worker takes it up after that. It is due {}.").format(
                moment(request.held_until), due
            )
        case RequestStatus.ACCEPTED:
            return Markup("none. A worker takes it up by itself; it is due {}.").format(due)
        case RequestStatus.RUNNING:
            return Markup("none. The rows are being erased, and models forget them; it is due {}.").format(due)
        case RequestStatus.COMPLETED:
            return Markup("tell the person what was done. {}").format(reply)
        case RequestStatus.REJECTED:
            return Markup("tell the person why, and that they may complain. {}").format(reply)
        case _:
            return Markup("none. The request has ended.")


def _reply(request: DeletionRequestOut) -> Markup:
    return Markup('<a href="{}/requests/{}/reply">Prepare the reply</a>').format(ROOT, request.id)


def waits(model: ModelToForgetOut) -> Markup:
    """The reason why a model has not forgotten yet, and when it will have at the latest."""
    run = f"; a run takes about {duration(model.seconds)}" if model.seconds is not None else ""
    until = Markup(", at the latest {}").format(moment(model.until)) if model.until else Markup("")
    match model.reason:
        case None:
            why = "nothing holds it up"
        case WaitReason.IN_REVIEW:
            why = "waits for the decision"
        case WaitReason.GRACE:
            why = "may still be cancelled"
        case WaitReason.BATCH:
            of = f" of {model.batch:,}" if model.batch is not None else ""
            why = f"waits for a batch: {model.waiting:,}{of} requests so far"
        case WaitReason.QUEUED:
            why = "is next for a worker"
        case WaitReason.RUN_UNDER_WAY:
            why = "waits for the run under way"
        case WaitReason.DELAYED:
            why = "waits for another attempt, because a run failed"
        case WaitReason.BUDGET_SPENT:
            why = "waits for room in the budget of the dataset: retire the model"
        case WaitReason.DAMAGED:
            why = "waits until damaged rows of the dataset are repaired"
        case _:
            why = str(model.reason)
    return Markup("{}{}{}").format(why, until, run)
