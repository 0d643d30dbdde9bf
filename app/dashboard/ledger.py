"""The ledger of all models: what was signed about its end, to be kept elsewhere, whether it holds, and all of it."""

import json

from fastapi import Response

from app.api import ledger
from app.dashboard import pages
from app.dashboard.visits import TheVisit

router = pages.new_router()


@router.get("/ledger")
def show_ledger(visit: TheVisit) -> Response:
    """What can be done with it. What is signed is only shown where it is taken away."""
    visit.require(ledger.get_ledger_head)
    return visit.page("ledger/one.html")


@router.post("/ledger/verify")
def verify_ledger(visit: TheVisit) -> Response:
    """Recompute all of it, now."""
    return visit.page("ledger/verdict.html", verdict=visit.ask(ledger.verify_whole_ledger))


@router.get("/ledger/head.json")
def download_head(visit: TheVisit) -> Response:
    """What was signed about the end: to be kept where nobody who could forge the ledger reaches it."""
    found = visit.ask(ledger.get_ledger_head)
    return pages.file("ledger-head.json", json.dumps(found.model_dump(mode="json"), indent=1), "application/json")


@router.get("/ledger/ledger.jsonl")
def download_ledger(visit: TheVisit) -> Response:
    """All of it, for whoever verifies it offline."""
    return visit.ask(ledger.export_ledger)
