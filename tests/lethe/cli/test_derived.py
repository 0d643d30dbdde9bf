"""Every operation of the contract exists as a method of both clients and as a command."""

import datetime
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import typer

from lethe import AsyncClient, Client
from lethe.cli import root
from lethe.cli.derived import GROUPS, leaves
from lethe.client.methods import Resource
from lethe.contract.deletion_requests import RequestFilter
from lethe.contract.models import ModelIn
from tests.command_line import Lethe, refused
from tests.lethe.declared import OPERATIONS
from tests.threads import apart

NAMES = {operation.name for operation in OPERATIONS}


def made_by(client: Client | AsyncClient) -> set[str]:
    """Return the names of the operations that the methods of a client's resources call."""
    resources = [resource for name, resource in vars(client).items() if not name.startswith("_")]
    methods = [inspect.getattr_static(one, name) for one in resources for name in dir(one)]
    return {method.operation.name for method in methods if hasattr(method, "operation")}


def commands(app: typer.Typer) -> Iterator[Any]:
    yield from (command.callback for command in app.registered_commands)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance)


def test_no_operation_is_missing_from_the_sdk() -> None:
    """Every operation of the contract is a method of a resource, both on the blocking client and on the
    asynchronous client."""
    assert len(NAMES) > 40
    with Client("http://127.0.0.1:1", "lethe_key") as client:
        assert made_by(client) == NAMES

    async def awaited() -> set[str]:
        async with AsyncClient("http://127.0.0.1:1", "lethe_key") as client:
            return made_by(client)

    assert apart(anyio.run, awaited) == NAMES


def test_no_operation_is_missing_from_the_command_line() -> None:
    """Every operation of the contract is called by at least one command."""
    made = {found.operation.name for found in commands(root.command_line()) if hasattr(found, "operation")}
    assert made == NAMES


def test_every_resource_is_a_group_of_commands() -> None:
    """For each of the client's resources, the command line has a group of the same name that calls the gateway through
    the same class."""
    with Client("http://127.0.0.1:1", "lethe_key") as client:
        resources = {name: type(one) for name, one in vars(client).items() if not name.startswith("_")}
    calling = {name: group.resource for name, group in GROUPS.items() if group.resource is not Resource}
    assert calling == resources


@pytest.mark.parametrize(
    ("command", "takes", "arguments"),
    [(("model", "create"), ModelIn, {"dataset_id"}), (("request", "list"), RequestFilter, set())],
)
def test_every_field_is_an_option(lethe: Lethe, command: tuple[str, ...], takes: Any, arguments: set[str]) -> None:
    """Each field of a call's input is an argument or an option of its command, including the fields of nested
    models."""
    said = lethe(*command, "--help").out
    for leaf in leaves(takes):
        assert leaf.name in arguments or f"--{leaf.name.replace('_', '-')}" in said, leaf.name


@pytest.mark.slow
def test_every_command_explains_itself(lethe: Lethe) -> None:
    """`--help` lists all groups, lists all commands of each group, and describes each command."""
    said = lethe("--help").out
    for group in GROUPS.values():
        assert f"  {group.name} " in said
        listed = lethe(group.name, "--help").out
        built = typer.main.get_group(group.app)
        for name, command in built.commands.items():
            assert f"  {name}" in listed
            assert command.help, name
            assert command.get_help(typer.Context(command, info_name=name))


def test_lists_are_printed_as_json(live: Lethe) -> None:
    """Lists without a text format are printed as one JSON object per line, up to the requested number. Lists with a
    text format are printed in the same way with `--json`."""
    keys = [live("key", "create", f"app {number}", "--scope", "requests:read").json["id"] for number in range(3)]
    listed = [json.loads(line) for line in live("key", "list", "--json", "--limit", "2").out.splitlines()]
    assert [one["id"] for one in listed] == [keys[2], keys[1]]
    actions = [json.loads(line)["action"] for line in live("audit", "list", "--limit", "3").out.splitlines()]
    assert actions == ["api_key.created"] * 3
    assert len(live("audit", "list").out.splitlines()) > 3
    assert live("audit", "list", "--action", "nothing.done").out == ""
    assert live("audit", "list", "--limit", "0").code == 2


def test_requests_are_filtered_and_exported(live: Lethe, tmp_path: Path) -> None:
    """`request list` and `request export` accept the same filters as the API. A request that is submitted twice with
    one idempotency key is listed once."""
    options = ("--external-id", "ticket-7", "--metadata", '{"desk": "north"}', "--ground", "objection", "--no-wait")
    asked = ("request", "submit", "p1", "--alias", "p1@example.org", "--idempotency-key", "mine", *options)
    first = live(*asked).json
    assert live(*asked).json["id"] == first["id"]
    second = live("request", "submit", "--subject-sha256", "a" * 64, "--regulation", "ccpa", "--no-wait").json
    assert (first["external_id"], first["metadata"], first["ground"]) == ("ticket-7", {"desk": "north"}, "objection")
    assert len(first["alias_refs"]) == 1
    assert [line.split()[0] for line in live("request", "list").out.splitlines()] == [second["id"], first["id"]]
    for filters, found in (
        (("--external-id", "ticket-7"), [first]),
        (("--subject-id", "p1"), [first]),
        (("--subject-sha256", "a" * 64), [second]),
        (("--regulation", "ccpa", "--limit", "1"), [second]),
        (("--status", "rejected"), []),
    ):
        listed = live("request", "list", "--json", *filters).out.splitlines()
        assert [json.loads(line)["id"] for line in listed] == [one["id"] for one in found], filters
    out = tmp_path / "out.csv"
    assert live("request", "export", "--out", out, "--external-id", "ticket-7").code == 0
    assert (first["id"] in out.read_text(), second["id"] in out.read_text()) == (True, False)
    assert live("request", "list", "--status", "unheard").code == 2
    refused(live("request", "list", "--due-before", "tomorrow"), "input_invalid")
    refused(live("request", "submit", "--no-wait"), "input_invalid")


def test_requests_are_created_from_csv_and_json(live: Lethe, tmp_path: Path) -> None:
    """All requests in a CSV or JSON file are created in one call."""
    file = tmp_path / "list.csv"
    file.write_text("subject_id,regulation\nanna,gdpr\nbert,ccpa\n")
    assert live("request", "create-from-csv", file, "--source", "drop").json["accepted"] == 2
    assert len(live("request", "list", "--source", "drop").out.splitlines()) == 2
    (tmp_path / "batch.json").write_text('[{"subject_id": "carl"}]')
    made = live("request", "create-batch", "--requests", f"@{tmp_path}/batch.json", "--source", "nightly").json
    assert (made["accepted"], made["refused"]) == (1, 0)
    assert live("request", "create-batch", "--requests", "[{").code == 2


def test_nested_settings_are_options(live: Lethe, people: Path) -> None:
    """Each setting of a nested model is an option under its full path and under its last name. Omitted options are not
    sent."""
    dataset = live("dataset", "create", people, "--classes", "0,1").json
    asked = ("--learn-steps", "10", "--target-epsilon", "3", "--max-requests", "5", "--chains", "4", "--no-wait")
    model = live("model", "create", dataset["id"], *asked).json
    assert (model["target"]["epsilon"], model["mechanism"]["learn_steps"]) == (3.0, 10)
    assert model["batching"] == {"max_requests": 5, "max_wait_seconds": 0}
    assert (model["audit"]["lanes"], model["audit"]["chains"]) == (256, 4)
    refused(live("model", "create", dataset["id"], "--epsilon", "-1"), "input_invalid")
    assert live("model", "create", dataset["id"], "--epsilon", "small").code == 2
    made = live("tenant", "create", "acme", "--no-auto-accept", "--policy-time-zone", "Europe/Berlin").json
    assert (made["policy"]["auto_accept"], made["policy"]["time_zone"]) == (False, "Europe/Berlin")
    refused(live("tenant", "create", "other", "--time-zone", "Nowhere"), "input_invalid")


def test_the_gateway_verifies(live: Lethe, certified: Path) -> None:
    """The gateway verifies certificates, the ledger and the audit log for callers who trust it."""
    assert live("certificate", "verdict", certified).json["valid"] is True
    refused(live("certificate", "verdict", certified, "--max-epsilon", "1e-9"), "certificate_beyond_limits")
    assert live("ledger", "verdict").json["valid"] is True
    assert live("audit", "verdict").json["valid"] is True
    model = live("model", "list", "--json").json
    assert live("account", "verify-ledger", model["id"]).json["valid"] is True
    assert len(live("account", "ledger", model["id"]).out.splitlines()) == 2
    assert live("account", "preview", model["id"], "--records", "2").json["kind"] in ("unlearn", "relearn")


def test_the_gateway_calculates(live: Lethe) -> None:
    """The gateway evaluates theorems with the same results as the offline commands."""
    params = ("--params", '{"mu": 0.3, "delta": 1e-5}')
    assert (
        live("account", "evaluate-bound", "gdp_eps", *params).json
        == live("account", "bound", "gdp_eps", "--param", "mu=0.3", "--param", "delta=1e-5").json
    )
    assert len(live("account", "list-bounds").out.splitlines()) == len(live("account", "bounds").out.splitlines())


def test_parameters_of_every_type_reach_the_gateway(live: Lethe, people: Path) -> None:
    """Dates, choices and subject ids can be passed to commands. A command whose response is empty prints nothing."""
    agent = ("--agent-id", "AGENT", "--name", "Agent", "--verify-key", "AQID" * 10 + "AQI=")
    made = live("agent", "register", *agent).json
    removed = live("agent", "remove", made["id"])
    assert (removed.code, removed.out, removed.err) == (0, "", "")
    assert live("leaving-reason", "submit", "--answer", "cost", "--odds", "3").code == 0
    monday = datetime.date(2000, 1, 3).isoformat()
    assert live("leaving-reason", "estimate", "--since", monday).json["surveys"][0]["num_answers"] == 1
    assert live("leaving-reason", "submit", "--answer", "boredom", "--odds", "3").code == 2
    assert live("overview", "show").json["overdue"] == 0
    dataset = live("dataset", "create", people, "--classes", "0,1").json["id"]
    assert live("dataset", "subject", dataset, "p1").json["num_records"] == 1
    assert [one["id"] for one in live("lineage", "of-person", "--subject-id", "p1").json["datasets"]] == [dataset]


@pytest.mark.slow
@pytest.mark.parametrize(("absent", "extra"), [("typer", "cli"), ("scipy", "verify")])
def test_a_missing_extra_is_reported(absent: str, extra: str) -> None:
    """A missing optional package is reported in one line that says which extra to install."""
    program = f"import sys; sys.modules[{absent!r}] = None; from lethe import cli; cli.main()"
    command = [sys.executable, "-c", program, "account", "bounds"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    said = f"error: {absent} is not installed; run: pip install 'lethe-sdk[{extra}]'\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)


@pytest.mark.slow
def test_commands_start_without_numpy() -> None:
    """No command imports numpy or scipy before it needs them, because they take longer to import than
    everything else."""
    script = (
        "import sys; from lethe.cli import root; root.command_line(); print(*({'numpy', 'scipy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
