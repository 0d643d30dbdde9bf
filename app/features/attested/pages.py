"""Page about trainers outside Lethe and their next retrainings."""

from fastapi import Response

from app.features.attested import endpoints
from app.features.desk import rendering as pages
from app.features.desk.languages import marked
from app.features.desk.lists import ThePlace
from app.features.desk.menu import MenuEntry
from app.features.desk.rendering import ROOT
from app.features.desk.request_context import TheContext

router = pages.new_router()


@router.get("/attested-trainers")
def list_attested_trainers(context: TheContext, place: ThePlace) -> Response:
    """List all trainers, each with its next retraining."""
    listing = context.listing(endpoints.list_attested_trainers, place, "trainer", "trainers")
    return context.page("attested/list.html", **listing)


PAGES = (router,)
MENU = (
    MenuEntry(71, marked("Attested trainers"), f"{ROOT}/attested-trainers", endpoints.list_attested_trainers, "models"),
)
