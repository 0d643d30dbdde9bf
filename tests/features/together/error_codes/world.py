"""An installation in which every error is caused, and the conditions that have a code."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from app.api import problems
from app.config import Settings
from app.installations import Installation
from lethe.contract.problems import Gone, Malformed, NotAllowed, Problem, Refused
from tests.faults import processes
from tests.features.protocols.agents import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The test's own installation, and shortcuts for calls."""

    gateway: TestClient
    installation: Installation
    settings: Settings
    work: Callable[[], int]
    new_dataset: Callable[..., dict[str, Any]]
    new_model: Callable[..., dict[str, Any]]
    forget: Callable[..., dict[str, Any]]
    key_with: Callable[..., dict[str, str]]

    def code(self, method: str, path: str, **asked: Any) -> str:
        """Make a call that fails, and return the code of its problem."""
        answer = self.gateway.request(method, f"/v1{path}", **asked)
        assert answer.headers["content-type"] == problems.MEDIA_TYPE, answer.text
        found: str = answer.json()["code"]
        assert answer.status_code == answer.json()["status"] == status_of(found)
        return found

    def done(self, method: str, path: str, **asked: Any) -> Any:
        answer = self.gateway.request(method, f"/v1{path}", **asked)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def twice(self, path: str, body: dict[str, Any]) -> str:
        self.done("POST", path, json=body)
        return self.code("POST", path, json=body)

    def upload(self, content: bytes, name: str = "people.npz", **asked: Any) -> str:
        return self.code("POST", "/datasets", data={"name": "people"} | asked, files={"file": (name, content)})

    def dataset_id(self, **asked: Any) -> str:
        return str(self.new_dataset(**asked)["id"])

    def model_id(self, **asked: Any) -> str:
        return str(self.new_model(self.dataset_id(), **asked)["id"])

    def live(self) -> str:
        model_id = self.model_id()
        self.work()
        return model_id

    def request_id(self, **asked: Any) -> str:
        return str(self.forget("p1", **asked)["id"])

    def under(self, **limit: Any) -> dict[str, str]:
        """Define a custom regulation for the tenant, and return the request field that selects it."""
        self.done("PATCH", "/tenant", json={"policy": {"regulations": {"own": {"days": 30} | limit}}})
        return {"regulation": "own"}

    def behind(self, *statements: str, triggers_of: str = "") -> None:
        """Run SQL statements that bypass the gateway. If `triggers_of` is given, drop the triggers of that table
        first."""
        with self.installation.database.engine.begin() as connection:
            named = f"SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name LIKE '{triggers_of}%'"
            for name in connection.scalars(sa.text(named)).all() if triggers_of else ():
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
            for statement in statements:
                connection.execute(sa.text(statement))

    def lethe(self, *words: str, **more: str) -> str:
        """Run a command that fails, and return its error code."""
        environment = processes.environment_of(self.settings.data_dir) | more
        done = processes.ended("lethe", *words, environment=environment)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1].removeprefix("error: ").partition(":")[0]

    def agent(self) -> Agent:
        self.done("PATCH", "/tenant", json={"policy": {"drp_business_id": "BUSINESS", "drp_claim": "email"}})
        agent = Agent(gateway=self.gateway)
        agent.register()
        assert agent.set_up().status_code == 200
        return agent


def status_of(code: str) -> int:
    return next(problems.status_of(condition) for condition in conditions() if condition.code == code)


FAMILIES = {Gone, Malformed, NotAllowed, Refused}
"""Base classes of errors, which state what to do about the conditions below them; no call is answered with them."""


def conditions(base: type[Problem] = Problem) -> list[type[Problem]]:
    every = [base, *(found for child in base.__subclasses__() for found in conditions(child))]
    return [
        one
        for one in every
        if one not in FAMILIES and one.__module__ not in ("lethe.errors", "lethe.features.handover.mlflow")
    ]
