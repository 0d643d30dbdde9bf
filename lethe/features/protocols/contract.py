"""Operations on agents of the Data Rights Protocol, and on issuers of identity statements."""

import datetime
from typing import Annotated, Any

from pydantic import Field

from lethe.contract import fields, operation, problems, sets


class MessageRefused(problems.NotAllowed, title="The signed message is not from this agent to this business"): ...


class AgentUnknown(problems.NotFound, title="There is no such agent"):
    template = "There is no agent {row_id!r}; GET /v1/agents lists them."


class IssuerUnknown(
    problems.NotFound, title="There is no such issuer", template="There is no issuer {issuer_id!r}."
): ...


class MessageEarly(problems.InputInvalid, title="The signed message is not valid yet"): ...


class MessageExpired(problems.InputInvalid, title="The signed message has expired or is valid for too long"): ...


class IssuerExists(problems.Conflict, title="This issuer is registered already"): ...


class AgentExists(problems.Conflict, title="An agent with this id exists"):
    template = "There is an agent {agent_id!r}; remove it first to change its key."


AgentId = Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,100}$"), fields.WHOLE]


class AgentIn(fields.Body):
    agent_id: AgentId = Field(description="ID of the agent in the directory of the Data Rights Protocol network.")
    name: fields.Name = Field(description="Name of the agent.")
    verify_key: Annotated[str, Field(max_length=100)] = Field(
        description="Ed25519 public key of the agent in base64, as listed in the directory."
    )


class AgentOut(fields.Answer):
    id: str = Field(description="ID of the agent's registration.")
    agent_id: str = Field(description="ID of the agent in the network's directory.")
    name: str = Field(description="Name of the agent.")
    verify_key: str = Field(description="Ed25519 public key of the agent in base64.")
    api_key_id: str | None = Field(
        description="ID of the API key that serves as the agent's token; null until the agent has requested a token."
    )
    created_at: datetime.datetime = Field(description="Time at which the agent was registered.")


_AGENTS = operation.ResourceOperations("Data Rights Protocol", "/v1/agents", AgentUnknown)

REGISTER_AGENT = _AGENTS.operation(
    "register_agent",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=AgentIn,
    gives=AgentOut,
    status=201,
    repeat="keyed",
    problems=(AgentExists,),
    does="Register an agent. The agent can then request a token at `POST /drp/v1/agent/{agent-id}`.",
)
LIST_AGENTS = _AGENTS.operation(
    "list_agents",
    "GET",
    scope=sets.Scope.ADMIN,
    query=fields.Paging,
    gives=fields.PageOut[AgentOut],
    does="List all registered agents, newest first.",
)
REMOVE_AGENT = _AGENTS.of_one(
    "remove_agent",
    "DELETE",
    "/{id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Remove an agent and revoke its token. Its requests are kept.",
)


_LongText = Annotated[fields.Text, Field(min_length=1, max_length=500)]


class IdentityIssuerIn(fields.Body):
    issuer: _LongText = Field(description="Value of the `iss` claim in the issuer's statements.")
    audience: _LongText = Field(
        description="Value of the `aud` claim in the issuer's statements, which identifies this service."
    )
    jwks: dict[str, Any] = Field(
        description="Public keys of the issuer as a JWK set (RFC 7517): Ed25519, P-256, or RSA of at least 2048 bits."
    )


class IdentityIssuerOut(fields.Answer):
    issuer: _LongText = Field(description="Value of the `iss` claim in the issuer's statements.")
    audience: _LongText = Field(description="Value of the `aud` claim in the issuer's statements.")
    jwks: dict[str, Any] = Field(description="Public keys of the issuer as a JWK set (RFC 7517).")
    id: str = Field(description="ID of the issuer.")
    created_at: datetime.datetime = Field(description="Time at which the issuer was registered.")


_IDENTITY_ISSUERS = operation.ResourceOperations("Identity issuers", "/v1/identity-issuers", IssuerUnknown)

CREATE_ISSUER = _IDENTITY_ISSUERS.operation(
    "create_identity_issuer",
    "POST",
    scope=sets.Scope.ADMIN,
    takes=IdentityIssuerIn,
    gives=IdentityIssuerOut,
    status=201,
    repeat="keyed",
    problems=(IssuerExists,),
    does="Register an identity issuer, whose statements about the subjects of deletion requests are then trusted.",
)
LIST_ISSUERS = _IDENTITY_ISSUERS.operation(
    "list_identity_issuers",
    "GET",
    scope=sets.Scope.ADMIN,
    query=fields.Paging,
    gives=fields.PageOut[IdentityIssuerOut],
    does="List trusted issuers, newest first.",
)
DELETE_ISSUER = _IDENTITY_ISSUERS.of_one(
    "delete_identity_issuer",
    "DELETE",
    "/{issuer_id}",
    scope=sets.Scope.ADMIN,
    gives=type(None),
    status=204,
    does="Stop trusting an issuer's statements.",
)
