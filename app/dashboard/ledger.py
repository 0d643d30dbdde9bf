"""The ledger of all models: what was signed about its end, to be kept elsewhere, whether it holds, and all of it."""

import json

from fastapi import Response

from app.api import ledger
from app.dashboard import pages
from app.dashboard.request_context import TheContext

router = pages.new_router()


@router.get("/ledger")
def show_ledger(context: TheContext) -> Response:
    """Show what can be done with the ledger. What is signed is only shown where it is taken away."""
    context.require(ledger.get_ledger_head)
    return context.page("ledger/one.html")


@router.post("/ledger/verify")
def verify_ledger(context: TheContext) -> Response:
    """Recompute all of it, now."""
    return context.page("ledger/verdict.html", verdict=context.ask(ledger.verify_whole_ledger))


@router.get("/ledger/head.json")
def download_head(context: TheContext) -> Response:
    """Send what was signed about the end: to be kept where nobody who could forge the ledger reaches it."""
    found = context.ask(ledger.get_ledger_head)
    return pages.file("ledger-head.json", json.dumps(found.model_dump(mode="json"), indent=1), "application/json")


@router.get("/ledger/ledger.jsonl")
def download_ledger(context: TheContext) -> Response:
    """Send all of the ledger, to be verified offline."""
    return context.ask(ledger.export_ledger)
