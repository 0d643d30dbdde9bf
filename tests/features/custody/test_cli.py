"""`lethe audit verify`, on the database without a gateway."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.access import tenants
from app.audit import repository, service as audit
from app.audit.checkpoints import AUDIT
from app.db import Actor
from app.installations import Installation
from app.keys import Keys
from app.operations import periodic_jobs
from lethe import cli
from lethe.contract.tenants import Policy

Verify = Callable[..., tuple[int, str]]


@pytest.fixture
def verify(installation: Installation, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Verify:
    """Return a function that runs `lethe audit verify ARGUMENTS` and returns its exit code and output."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setenv("LETHE_DATA_DIR", str(installation.settings.data_dir))
        monkeypatch.setattr(sys, "argv", ["lethe", "audit", "verify", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, "".join(capfd.readouterr())

    return run


@pytest.fixture
def other(installation: Installation, by: Actor) -> str:
    """Create a second tenant with five signed audit entries, and return its id."""
    with installation.database.writing(by=by) as session:
        tenant = tenants.create(session, name="other", policy=Policy(), admin_key="k")
    with installation.database.writing(by=Actor(tenant_id=tenant.id, name="test")) as session:
        for number in range(3):
            audit.record(session, "thing.done", f"thing_{number}")
    periodic_jobs.sign_heads(installation)
    return tenant.id


def _tamper(installation: Installation, *statements: str) -> None:
    """Execute SQL after dropping the triggers that would forbid it."""
    with installation.database.engine.begin() as connection:
        named = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%append-only%'"
        for name in connection.scalars(sa.text(named)).all():
            connection.execute(sa.text(f"DROP TRIGGER {name}"))
        for statement in statements:
            connection.execute(sa.text(statement))


def test_every_tenant_is_verified(installation: Installation, verify: Verify, other: str, tmp_path: Path) -> None:
    """The command `verify` checks every tenant's log, or only the log of `--tenant`. The option `--jwks` reads the keys
    from a file."""
    code, said = verify()
    assert code == 0
    assert said.count("valid") == 2
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [installation.keys.signing_key.as_dict(private=False)]}))
    for arguments in ((), ("--jwks", jwks)):
        code, said = verify("--tenant", other, *arguments)
        assert code == 0
        assert said.count("valid") == 1
        assert "5 entries, signed up to 5 (1 checkpoints)" in said
    assert verify("--tenant", "ten_0") == (1, "error: tenant_unknown: There is no tenant 'ten_0'.\n")


def test_tampering_is_named(installation: Installation, verify: Verify, other: str) -> None:
    """If a log has been tampered with in the database, the command names the fault in one line and exits with code
    1."""
    _tamper(installation, f"UPDATE audit_entries SET actor = 'key_0' WHERE sequence = 3 AND tenant_id = '{other}'")
    code, said = verify()
    assert code == 1
    assert f"error: audit_corrupt: Tenant {other}, audit entry 3: it is not what was hashed" in said


def test_a_saved_checkpoint_detects_truncation(
    installation: Installation, verify: Verify, other: str, tmp_path: Path
) -> None:
    """If a log is truncated together with its checkpoints, a checkpoint saved elsewhere reveals it."""
    with installation.database.reading() as session:
        [checkpoint] = repository.all_checkpoints(session, AUDIT, tenant_id=other)
    kept = tmp_path / "checkpoint.jws"
    kept.write_text(checkpoint.jws + "\n")
    assert verify("--checkpoint", kept)[0] == 0
    _tamper(
        installation,
        f"DELETE FROM audit_entries WHERE sequence > 3 AND tenant_id = '{other}'",
        f"DELETE FROM checkpoints WHERE tenant_id = '{other}'",
    )
    assert verify()[0] == 0
    code, said = verify("--checkpoint", kept)
    assert code == 1
    assert "entry 4: it is missing, and entry 5 was signed" in said
    assert "whose log is not there" in verify("--tenant", "ten_default", "--checkpoint", kept)[1]
    kept.write_text("no checkpoint")
    assert "audit_corrupt: The file holds no checkpoint" in verify("--checkpoint", kept)[1]


@pytest.mark.usefixtures("other")
def test_checkpoints_do_not_verify_with_other_keys(installation: Installation, verify: Verify, tmp_path: Path) -> None:
    """Checkpoints do not verify with another installation's public keys. If there is no key at all, nothing is verified
    and no key is created."""
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps({"keys": [Keys(tmp_path / "keys").create().signing_key.as_dict(private=False)]}))
    code, said = verify("--jwks", jwks)
    assert code == 1
    assert "it was not signed with any of the given keys" in said
    signing = installation.settings.data_dir / "keys" / "signing.jwk"
    signing.unlink()
    assert verify()[0] == 1
    assert not signing.exists()
    jwks.write_text("no keys")
    assert "certificate_invalid" in verify("--jwks", jwks)[1]
