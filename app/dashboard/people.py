"""People who log in: invited once, with a role, and disabled when they leave."""

import datetime
from typing import Literal

from fastapi import Response

from app.api import problems, users
from app.dashboard import pages
from app.dashboard.languages import gettext, marked
from app.dashboard.lists import Place, ThePlace
from app.dashboard.pages import ROOT
from app.dashboard.request_context import Form, RequestContext, TheContext
from app.dashboard.requests import checked, text
from app.dashboard.wording import words
from lethe.contract.problems import Problem
from lethe.contract.sets import Role
from lethe.contract.users import SCOPES_OF, InvitedUserOut, UserChangeIn, UserIn, UserOut

router = pages.new_router()

_MEANS = {
    Role.VIEWER: marked("sees requests, models, accounts and certificates"),
    Role.OFFICER: marked("also makes requests and decides about them"),
    Role.ENGINEER: marked("sees the same as a viewer; uploads datasets, makes models"),
    Role.ADMINISTRATOR: marked("everything in this tenant, and its people, keys and policy"),
    Role.OPERATOR: marked("the tenants and the settings of the installation, and nothing in them"),
}


@router.get("/people")
def list_people(context: TheContext, place: ThePlace, done: Literal["", "disabled"] = "") -> Response:
    """Everybody, newest first."""
    return _list(context, place, done=done)


@router.post("/people")
def invite_somebody(context: TheContext, form: Form) -> Response:
    """Invite somebody, and show the invitation this once."""
    try:
        body = checked(UserIn, name=text(form, "name"), email=text(form, "email"), role=text(form, "role"))
        made = context.ask(users.create_user, body=body)
    except Problem as error:
        return _list(context, Place(), error=error)
    return _invited(context, made)


@router.get("/people/{user_id}")
def show_person(context: TheContext, user_id: str, done: Literal["", "changed"] = "") -> Response:
    """Show what somebody may do, and how they log in."""
    return _one(context, user_id, done=done)


@router.post("/people/{user_id}/change")
def change_person(context: TheContext, form: Form, user_id: str) -> Response:
    """Give somebody another name or role."""
    try:
        body = checked(UserChangeIn, name=text(form, "name"), role=text(form, "role"))
        context.ask(users.change_user, user_id=user_id, body=body)
    except Problem as error:
        return _one(context, user_id, error)
    return pages.see(f"{ROOT}/people/{user_id}", done="changed")


@router.post("/people/{user_id}/invite")
def invite_again(context: TheContext, user_id: str) -> Response:
    """Invite somebody again, who has lost what they log in with."""
    try:
        return _invited(context, context.ask(users.invite_user, user_id=user_id))
    except Problem as error:
        return _one(context, user_id, error)


@router.post("/people/{user_id}/disable")
def disable_person(context: TheContext, user_id: str) -> Response:
    """From here on they do not get in."""
    try:
        context.ask(users.disable_user, user_id=user_id)
    except Problem as error:
        return _one(context, user_id, error)
    return pages.see(f"{ROOT}/people", done="disabled")


def _status(user: UserOut) -> str:
    if user.disabled_at is not None:
        return "disabled"
    if user.has_password or user.has_identity:
        return "in_force"
    at = datetime.datetime.now(datetime.UTC)
    return "invited" if user.invited_until is not None and user.invited_until > at else "expired"


def _roles(context: RequestContext) -> list[tuple[str, str]]:
    """The roles that the caller may give, each with what it means."""
    given = [role for role in Role if all(context.caller.has(scope) for scope in SCOPES_OF[role])]
    return [(role.value, f"{words(role)}: {gettext(_MEANS[role])}") for role in given]


def _invited(context: RequestContext, made: InvitedUserOut) -> Response:
    settings, request = context.call.installation.settings, context.request
    origin = settings.dashboard_origin or f"{request.url.scheme}://{request.url.netloc}"
    return context.page("people/invited.html", status=201, made=made, link=origin + made.invitation)


def _one(context: RequestContext, user_id: str, error: Problem | None = None, *, done: str = "") -> Response:
    status = problems.status_of(type(error)) if error else 200
    user = context.ask(users.get_user, user_id=user_id)
    return context.page(
        "people/one.html",
        status=status,
        user=user,
        state=_status(user),
        roles=_roles(context),
        means=gettext(_MEANS[Role(user.role)]),
        done=done,
        error=error,
    )


def _list(context: RequestContext, place: Place, *, done: str = "", error: Problem | None = None) -> Response:
    found = context.ask(users.list_users, limit=place.size, cursor=place.cursor)
    return context.page(
        "people/list.html",
        status=problems.status_of(type(error)) if error else 200,
        found=found,
        people=[(user, _status(user)) for user in found.items],
        roles=_roles(context),
        place=place,
        extent=place.extent(found, "person", "people"),
        done=done,
        error=error,
    )
