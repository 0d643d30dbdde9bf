"""Page of the identity map: its number of identifiers of each kind, and the datasets that name people by them."""

from fastapi import Response

from app.features.desk import rendering as pages
from app.features.desk.languages import marked
from app.features.desk.menu import MenuEntry
from app.features.desk.request_context import TheContext
from app.features.identities import endpoints

router = pages.new_router()


@router.get("/identities")
def show_identities(context: TheContext) -> Response:
    """Show the counts of the identity map by kind. The map has no identifiers to show, only hashes."""
    return context.page("identities.html", identities=context.ask(endpoints.get_identities))


PAGES = (router,)
MENU = (MenuEntry(95, marked("Identities"), f"{pages.ROOT}/identities", endpoints.get_identities, "settings"),)
