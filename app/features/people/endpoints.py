"""Endpoints under `/users`: people who log in to the dashboard, each with a role."""

from fastapi import APIRouter, Response

from app.api import calls, gateway
from app.features.people import repository, tables, users
from lethe.contract.fields import PageOut, Paging
from lethe.features.people import contract

router = APIRouter()

_WELCOME = "/admin/welcome?invitation="


@gateway.serves(router, contract.CREATE)
def create_user(call: calls.Call, body: contract.UserIn, response: Response) -> contract.InvitedUserOut:
    with call.writing() as session:
        user, invitation = users.create(session, name=body.name, email=body.email, role=body.role, by=call.caller)
    return _invited(user, invitation, response)


@gateway.serves(router, contract.LIST)
def list_users(call: calls.Call, query: Paging) -> PageOut[contract.UserOut]:
    with call.reading() as session:
        page = repository.users(session, limit=query.limit, cursor=query.cursor)
    return PageOut(items=[_to_response(user) for user in page.items], next_cursor=page.next_cursor)


@gateway.serves(router, contract.GET)
def get_user(call: calls.Call, user_id: str) -> contract.UserOut:
    with call.reading() as session:
        return _to_response(users.get(session, user_id))


@gateway.serves(router, contract.CHANGE)
def change_user(call: calls.Call, user_id: str, body: contract.UserChangeIn) -> contract.UserOut:
    with call.writing() as session:
        return _to_response(users.change(session, user_id, by=call.caller, name=body.name, role=body.role))


@gateway.serves(router, contract.INVITE)
def invite_user(call: calls.Call, user_id: str, response: Response) -> contract.InvitedUserOut:
    with call.writing() as session:
        user, invitation = users.invite(session, user_id, by=call.caller)
    return _invited(user, invitation, response)


@gateway.serves(router, contract.DISABLE)
def disable_user(call: calls.Call, user_id: str) -> None:
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


MOUNTS = (gateway.Mount(router=router),)
