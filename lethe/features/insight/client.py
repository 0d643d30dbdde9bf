"""`client.accounting` and `client.deletion_requests` calls about the past and future cost of forgetting."""

from lethe.client.methods import H, Resource, call, pages
from lethe.features.insight import contract


class InsightAccounting(Resource[H]):
    """Methods of `client.accounting` that concern the cost of requests: accounts, previews, plans and trajectories."""

    model = call(contract.MODEL)
    dataset = call(contract.DATASET)
    deletion_request = call(contract.DELETION_REQUEST)
    trajectory = pages(contract.TRAJECTORY)
    preview = call(contract.PREVIEW)
    plan = call(contract.PLAN)


class RequestInsights(Resource[H]):
    """Methods of `client.deletion_requests` for previews and the summary."""

    summary = call(contract.SUMMARY)
    preview = call(contract.PREVIEW_REQUEST)
