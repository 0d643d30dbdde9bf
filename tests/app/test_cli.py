"""The server's commands: verification of the ledger with and without a running gateway, and invalid settings."""

from pathlib import Path

import pytest

from tests.command_line import Lethe, refused


def test_a_ledger_verifies_with_and_without_the_service(
    certified: Path, live: Lethe, lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger of a trained model and a completed request verifies on the service's host, and the command prints the
    hash of the ledger's head. An exported ledger verifies on another host against a head that was saved earlier. If an
    export is refused, the existing file is kept."""
    verified = live("ledger", "verify")
    assert (verified.code, verified.err) == (0, "")
    first, last, signed = verified.out.splitlines()
    assert first == "valid  2 entries of 1 models"
    assert [len(part) for part in last.split()] == [24, 64]
    assert "signed up to link 2 of 2, 1 certificates agree" in signed
    head, export = tmp_path / "head.json", tmp_path / "ledger.jsonl"
    head.write_text(live("ledger", "head").out)
    assert live("ledger", "export", export).out == f"{export} and {export}.jwks.json\n"
    written = export.read_bytes()
    key = live("key", "create", "app", "--scope", "requests:read").json["key"]
    refused(live("ledger", "export", export, "--key", key), "scope_missing")
    assert export.read_bytes() == written
    assert {path.name for path in tmp_path.glob("*ledger*")} == {"ledger.jsonl", "ledger.jsonl.jwks.json"}
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "elsewhere"))
    ended = lethe("ledger", "verify", "--head", head, export)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("there", [False, True])
def test_a_ledger_without_an_installation_is_refused(
    lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Verifying a ledger without a data folder, or with an empty data folder, fails with a one-line error."""
    if there:
        (tmp_path / "data").mkdir()
    monkeypatch.setenv("LETHE_DATA_DIR", str(tmp_path / "data"))
    refused(lethe("ledger", "verify"), "database_unreadable")


@pytest.mark.parametrize("command", [("up",), ("serve",), ("migrate",), ("ledger", "verify")])
@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("LOG_LEVEL", "loud"), ("LEASE_SECONDS", "0")])
def test_bad_settings_are_refused_in_one_line(
    lethe: Lethe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: tuple[str, ...], name: str, value: str
) -> None:
    """Every command reports a bad setting by name in one line, and nothing is started or created."""
    monkeypatch.setenv(f"LETHE_{name}", value)
    ended = lethe(*command)
    refused(ended, "settings_invalid")
    assert f"LETHE_{name} " in ended.err
    assert not list(tmp_path.iterdir())


def test_the_server_adds_its_commands(lethe: Lethe) -> None:
    """If the server is installed, its commands are listed together with the client's commands, even in groups
    with the same name."""
    said = lethe("--help").out
    assert all(f"\n  {name} " in said for name in ("up", "migrate", "health", "request", "ledger"))
    assert "\n  verify " in lethe("ledger", "--help").out
    assert "worker" in lethe("health", "--help").out
