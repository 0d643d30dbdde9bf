"""`client.accounting`: how much of anybody is left, and what forgetting would take. The gateway answers, and the
accounting service alone."""

from lethe.contract import accounting, bounds, curves, plans, previews
from lethe.methods import H, Resource, call, pages


class Accounting(Resource[H]):
    model = call(accounting.MODEL)
    dataset = call(accounting.DATASET)
    deletion_request = call(accounting.DELETION_REQUEST)
    ledger = pages(accounting.LEDGER)
    verify_ledger = call(accounting.VERDICT)
    trajectory = pages(curves.TRAJECTORY)
    preview = call(previews.PREVIEW)
    rivals = call(previews.RIVALS)
    plan = call(plans.PLAN)
    evaluate = call(bounds.EVALUATE)
    sweep = call(bounds.SWEEP)
    bounds = pages(bounds.BOUNDS)
