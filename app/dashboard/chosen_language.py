"""The language that somebody chooses: kept in a cookie, before a login as well as after it."""

from fastapi import Request, Response

from app.access import sessions
from app.api.calls import At
from app.dashboard import gate, languages, pages
from app.dashboard.request_context import COOKIE, check_form
from app.dashboard.requests import text
from lethe.contract.problems import FormRefused, InputInvalid, Unauthenticated

router = pages.new_router()

_YEAR = 365 * 86400


@router.post("/language")
async def choose_language(request: Request, installation: At) -> Response:
    """Keep the choice, and show the page again on which it was made."""
    if not (gate.is_known(request) or COOKIE in request.cookies):
        raise Unauthenticated("A language is chosen on a page.")
    try:
        form = await gate.form_of(request, installation.settings)
    except FormRefused:
        await check_form(request, installation.settings, sessions.form_token(request.cookies.get(COOKIE, "")))
        form = await request.form()
    language = text(form, "language")
    if language not in languages.LANGUAGES:
        raise InputInvalid(languages.gettext("The pages are not in this language."))
    answer = pages.see(gate.inside(str(form.get("next", ""))))
    answer.set_cookie(
        languages.COOKIE,
        language,
        path=pages.ROOT,
        max_age=_YEAR,
        secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return answer
