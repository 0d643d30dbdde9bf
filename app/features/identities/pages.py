"""Page about the identity map: for each kind, how many identifiers it contains and how many datasets use them."""

from fastapi import Response

from app.features.desk import rendering as pages
from app.features.desk.languages import marked
from app.features.desk.menu import MenuEntry
from app.features.desk.request_context import TheContext
from app.features.identities import endpoints

router = pages.new_router()


@router.get("/identities")
def show_identities(context: TheContext) -> Response:
    """Show the identity map's counts by kind. There are no identifiers to show, because the map has only hashes."""
    return context.page("identities.html", identities=context.ask(endpoints.get_identities))


PAGES = (router,)
MENU = (MenuEntry(95, marked("Identities"), f"{pages.ROOT}/identities", endpoints.get_identities, "settings"),)
