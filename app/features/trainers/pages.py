"""Page about trainers: which have live artefacts, how many requests are waiting for each, and why a trainer fails."""

from fastapi import Response

from app.features.desk import rendering as pages
from app.features.desk.languages import marked
from app.features.desk.lists import ThePlace
from app.features.desk.menu import MenuEntry
from app.features.desk.request_context import TheContext
from app.features.trainers import endpoints

router = pages.new_router()


@router.get("/trainers")
def show_trainers(context: TheContext, place: ThePlace) -> Response:
    """List trainers, newest first."""
    found = context.ask(endpoints.list_trainers, limit=place.size, cursor=place.cursor)
    return context.page("trainers.html", found=found, place=place)


PAGES = (router,)
MENU = (MenuEntry(72, marked("Trainers"), f"{pages.ROOT}/trainers", endpoints.list_trainers, "models"),)
