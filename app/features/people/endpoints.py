"""Endpoints under `/users`: people who log in to the dashboard, each with a role."""

from fastapi import APIRouter, Response

from app.api.calls import Call
from app.api.gateway import Mount, serves
from app.features.people import repository, tables, users
from lethe.contract.fields import PageOut, Paging
from lethe.features.people import contract

router = APIRouter()

_WELCOME = "/admin/welcome?invitation="


@serves(router, contract.CREATE)
def create_user(call: Call, body: contract.UserIn, response: Response) -> contract.InvitedUserOut:
    with call.writing() as session:
        user, invitation = users.create(session, name=body.name, email=body.email, role=body.role, by=call.caller)
    return _invited(user, invitation, response)


@serves(router, contract.LIST)
def list_users(call: Call, query: Paging) -> PageOut[contract.UserOut]:
    with call.reading() as session:
        page = repository.users(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[_to_response(user) for user in page.items], next_cursor=page.next_cursor)


@serves(router, contract.GET)
def get_user(call: Call, user_id: str) -> contract.UserOut:
    with call.reading() as session:
        return _to_response(users.get(session, user_id))


@serves(router, contract.CHANGE)
def change_user(call: Call, user_id: str, body: contract.UserChangeIn) -> contract.UserOut:
    with call.writing() as session:
        return _to_response(users.change(session, user_id, by=call.caller, name=body.name, role=body.role))


@serves(router, contract.INVITE)
def invite_user(call: Call, user_id: str, response: Response) -> contract.InvitedUserOut:
    with call.writing() as session:
        user, invitation = users.invite(session, user_id, by=call.caller)
    return _invited(user, invitation, response)


@serves(router, contract.DISABLE)
def disable_user(call: Call, user_id: str) -> None:
    with call.writing() as session:
        users.disable(session, user_id, by=call.caller)


def _invited(user: tables.User, invitation: str, response: Response) -> contract.InvitedUserOut:
    response.headers["Location"] = f"/v1/users/{user.id}"
    return contract.InvitedUserOut(**_to_response(user).model_dump(), invitation=_WELCOME + invitation)


def _to_response(user: tables.User) -> contract.UserOut:
    return contract.UserOut.of(
        user,
        has_password=user.password_hash is not None,
        has_totp=user.totp.is_damaged or bool(user.totp.secret),
        has_identity=user.oidc_subject is not None,
        invited_until=user.invitation_expires_at,
    )


MOUNTS = (Mount(router=router),)
