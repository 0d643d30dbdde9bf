"""Page about trainers: which have live artefacts, how many requests are waiting for each, and why a trainer fails."""

from fastapi import Response

from app.features.desk import languages, lists, menu, rendering as pages, request_context
from app.features.trainers import endpoints

router = pages.new_router()


@router.get("/trainers")
def show_trainers(context: request_context.TheContext, place: lists.ThePlace) -> Response:
    """List trainers, newest first."""
    found = context.ask(endpoints.list_trainers, limit=place.size, cursor=place.cursor)
    return context.page("trainers.html", found=found, place=place)


PAGES = (router,)
MENU = (menu.MenuEntry(72, languages.marked("Trainers"), f"{pages.ROOT}/trainers", endpoints.list_trainers, "models"),)
