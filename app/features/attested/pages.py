"""Page about trainers outside Lethe and their next retrainings."""

from fastapi import Response

from app.features.attested import endpoints
from app.features.desk import languages, lists, menu, rendering, rendering as pages, request_context

router = pages.new_router()


@router.get("/attested-trainers")
def list_attested_trainers(context: request_context.TheContext, place: lists.ThePlace) -> Response:
    """List all trainers, each with its next retraining."""
    listing = context.listing(endpoints.list_attested_trainers, place, "trainer", "trainers")
    return context.page("attested/list.html", **listing)


PAGES = (router,)
MENU = (
    menu.MenuEntry(
        71,
        languages.marked("Attested trainers"),
        f"{rendering.ROOT}/attested-trainers",
        endpoints.list_attested_trainers,
        "models",
    ),
)
