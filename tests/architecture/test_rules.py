"""Rules of the project that no type checker enforces."""

import ast
import graphlib
import re
import subprocess

import pytest
from fastapi.testclient import TestClient

from app import errors
from app.api import problems
from app.config import Settings
from lethe.contract.problems import LedgerCorrupt, LedgerRestored, Problem
from tests.architecture.ceilings import MAX_FILE_LINES, statements
from tests.architecture.sources import ROOT, SOURCES, facts
from tests.tables import each


def callers(name: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in SOURCES if name in facts(path).called}


@pytest.mark.slow
def test_modules_can_be_imported_in_any_order() -> None:
    """Modules can be imported in any order, because no module needs one that is still being imported."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES
    }
    needs: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for module, imported in facts(path).imported:
            needs[name] |= ({f"{module}.{imported}"} & modules.keys()) or ({module} & modules.keys())
    assert list(graphlib.TopologicalSorter(needs).static_order())


def test_only_sessions_commit() -> None:
    """Only `db/session.py`, where transactions begin, calls `commit` and `rollback`."""
    assert callers("commit") | callers("rollback") <= {"app/db/session.py"}
    assert callers("sessionmaker") == {"app/db/session.py"}


def test_engines_begin_transactions_in_two_places() -> None:
    """Only sessions and migrations open transactions."""
    assert callers("begin") <= {"app/db/session.py", "app/db/migrate.py"}


def test_statements_are_verified_before_signing() -> None:
    """Only one function signs with signing.jwk, and it verifies each statement first."""
    assert callers("serialize_compact") == {"app/signing.py"}


def test_only_the_command_line_prints() -> None:
    """Only the command line prints; all other code writes to the log."""
    assert all(path.startswith(("app/cli/", "lethe/cli/")) or path.endswith("cli.py") for path in callers("print"))


def test_no_code_compares_sentences() -> None:
    """Code makes decisions based on kinds and codes, and never compares a value with a string of several words."""
    sentences = {text for path in SOURCES for _, text in facts(path).compared if re.search("[a-z] [a-z]", text)}
    assert sentences == set()


def test_statuses_are_named_by_the_contract() -> None:
    """No status, run kind, order or decision is compared with a string literal, except for MLflow's statuses."""
    ours = [path for path in SOURCES if path != ROOT / "lethe/features/handover/mlflow.py"]
    named = (".status", "run.kind", "plan.kind", "segment.kind", ".workers", ".order", ".decision", ".danger")
    assert {one for path in ours for one in facts(path).compared if one[0].endswith(named)} == set()


def test_personal_json_bypasses_pydantic_caches() -> None:
    """JSON about people is neither written nor read by pydantic, because pydantic caches strings in memory that is
    never overwritten. Models that bypass this cache (`protocols.parsing.ProtocolMessage`) are exempt."""
    assert {path for path in callers("model_dump_json") if path.startswith("app/")} == set()
    reads = {"app/features/protocols/parsing.py", "app/features/desk/pages/administration.py"}
    assert {path for path in callers("model_validate_json") if path.startswith("app/")} <= reads


def test_only_settings_read_the_environment() -> None:
    """Only the settings read environment variables, except for those of the memory allocator and the client's gateway
    address."""
    reads = {str(path.relative_to(ROOT)) for path in SOURCES if "os.environ" in path.read_text()}
    assert callers("getenv") == set()
    process = "lethe/features/networks/encoders/process.py"
    assert reads <= {"app/supervisor.py", "app/hardening.py", "lethe/cli/gateway.py", process}


@each("name", Settings.model_fields)
def test_every_setting_is_described_and_optional(name: str) -> None:
    """Every setting has a default and a description for operators."""
    field = Settings.model_fields[name]
    assert (field.description or "").endswith(".")
    assert not field.is_required()


def conditions(base: type[Problem] = Problem) -> list[type[Problem]]:
    """Return the conditions that a gateway can respond with, excluding the SDK's own."""
    every = [base, *(found for child in base.__subclasses__() for found in conditions(child))]
    return [one for one in every if one.__module__ not in ("lethe.errors", "lethe.features.handover.mlflow")]


NEVER_A_CALLERS_FAULT = {
    Problem,
    errors.LeaseLost,
    errors.RunDiffersFromPlan,
    errors.RunKindUnsupported,
    errors.AuditFailed,
    errors.NotConverged,
    errors.AuditCorrupt,
    LedgerCorrupt,
    LedgerRestored,
    errors.MechanismUnreadable,
    errors.MethodUnsupported,
    errors.WeightsUnreadable,
    errors.AlreadyRunning,
    errors.DatabaseUnreadable,
    errors.DatasetTooLarge,
    errors.SecondMomentExceeded,
    errors.AddressInUse,
    errors.FolderExposed,
    errors.SignatureUnverifiable,
    errors.SigningUnusable,
    errors.BackupRefused,
    errors.BackupDamaged,
    errors.TombstonesDamaged,
    errors.TombstonesStale,
    errors.RestoreUnfinished,
}


@each("condition", conditions())
def test_every_error_has_a_status(condition: type[Problem]) -> None:
    """Every error that a caller can cause, or that goes away if the caller waits, has a specific status; all other
    errors return 500."""
    status = problems.status_of(condition)
    assert (status == 500) == (condition in NEVER_A_CALLERS_FAULT)
    assert 400 <= status <= 503


def test_every_route_declares_its_problems(gateway: TestClient) -> None:
    """Routes below /v1 declare the problems for malformed input, a missing key and a missing scope. Routes with an id
    also declare the problem for an unknown id."""
    paths = gateway.get("/openapi.json").json()["paths"]
    operations = {
        f"{method} {path}": operation["responses"].keys()
        for path, methods in paths.items()
        for method, operation in methods.items()
        if path.startswith("/v1")
    }
    assert len(operations) > 20
    for operation, statuses in operations.items():
        needed = {"401", "403", "422"} | ({"404"} if "{" in operation else set())
        assert needed <= statuses, operation


def test_every_test_has_a_docstring() -> None:
    """Each test has a docstring that ends with a period."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                sentence = ast.get_docstring(node) or ""
                assert sentence.endswith("."), f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


VENDORED = {
    "app/features/desk/static/vendor/htmx.min.js",
    "app/features/desk/static/vendor/uPlot.iife.min.js",
    "app/features/desk/static/vendor/uPlot.min.css",
    "tests/features/desk/browser/axe/axe.min.js",
}


def test_no_file_exceeds_the_ceiling() -> None:
    """No source, test, page or style sheet has more than MAX_FILE_LINES lines; migrations are exempt."""
    suffixes = [f"*.{suffix}" for suffix in ("py", "js", "css", "html")]
    tracked = subprocess.run(["git", "ls-files", *suffixes], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:  # a copy without the Git history
        return
    files = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()} - VENDORED
    written = {name for name in files if not name.startswith("migrations/versions/")}
    assert [name for name in sorted(written) if len((ROOT / name).read_bytes().splitlines()) > MAX_FILE_LINES] == []
