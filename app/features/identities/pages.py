"""Page about the identity map: for each kind, how many identifiers it contains and how many datasets use them."""

from fastapi import Response

from app.features.desk import languages, menu, rendering as pages, request_context
from app.features.identities import endpoints

router = pages.new_router()


@router.get("/identities")
def show_identities(context: request_context.TheContext) -> Response:
    """Show the identity map's counts by kind. There are no identifiers to show, because the map has only hashes."""
    return context.page("identities.html", identities=context.ask(endpoints.get_identities))


PAGES = (router,)
MENU = (
    menu.MenuEntry(
        95, languages.marked("Identities"), f"{pages.ROOT}/identities", endpoints.get_identities, "settings"
    ),
)
