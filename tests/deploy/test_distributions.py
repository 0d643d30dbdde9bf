"""The two distributions: `lethe-sdk`, which customers install next to their own code, and the server."""

import importlib.metadata
import os
import subprocess
import sys
import textwrap
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.config import Settings
from tests.conftest import npz
from tests.faults import processes

ROOT = Path(__file__).parents[2]

CALLER = """
import json
import sys
from pathlib import Path

import app  # the customer's own

assert app.whose == "customer", app.__file__

from lethe import Client

with Client(sys.argv[1], sys.argv[2]) as client:
    people = client.datasets.upload(sys.argv[3], classes=["no", "yes"])
    model = client.models.wait(client.models.create(name="m", dataset_id=people.id, l2=0.05).id, timeout_seconds=120)
    assert model.status == "live", model.error_code
    request = client.deletion_requests.create(subject_id="p1")
    request = client.deletion_requests.wait(request.id, timeout_seconds=120)
    [certificate] = client.deletion_requests.certificates(request.id)
    jwks = client.certificates.public_keys()
    Path("ledger.jsonl").write_bytes(b"".join(client.ledger.export()))
    Path("ledger.jsonl.jwks.json").write_text(json.dumps(jwks))

assert not {"numpy", "scipy"} & sys.modules.keys(), "only numbers need these"

from lethe.verification import verify, verify_ledger

verdict = verify(certificate.jws, jwks)
assert verdict.valid and verdict.statement["request"]["id"] == request.id
recomputed = verify_ledger(Path("ledger.jsonl"), jwks)
assert (recomputed.report.entries, recomputed.signed) == (2, 2)
assert not {"worker", "migrations", "fastapi", "sqlalchemy", "torch"} & sys.modules.keys()
print(f"{verdict.guarantees[0].epsilon:.6g}")
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build both wheels as they are published, and return them keyed by distribution name."""
    made: Path = tmp_path_factory.mktemp("wheels")
    for source in (ROOT / "lethe", ROOT):
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(made)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    return {path.name.split("-")[0]: path for path in made.glob("*.whl")}


def needed(requirements: list[str], *, found: set[str] | None = None) -> set[str]:
    """Return the installed distributions that these requirements need, including indirect ones."""
    found = set() if found is None else found
    for requirement in map(Requirement, requirements):
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and (name := canonicalize_name(requirement.name)) not in found:
            found.add(name)
            needed(importlib.metadata.requires(requirement.name) or [], found=found)
    return found


def asked_by(wheel: Path, *extras: str) -> list[str]:
    """Return the requirements of a wheel, including those of the given extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    requirements = [
        Requirement(line.removeprefix("Requires-Dist: ")) for line in lines if line.startswith("Requires-Dist")
    ]
    return [
        f"{one.name}{one.specifier}"
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def files_of(names: set[str]) -> Iterator[tuple[Path, Path]]:
    """Yield every file of these distributions and its path below site-packages."""
    for name in names:
        for file in importlib.metadata.files(name) or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                yield Path(file.locate()), Path(file)  # type: ignore[arg-type]


@pytest.fixture
def environment(tmp_path: Path, wheels: dict[str, Path]) -> Callable[..., Path]:
    """Return a function that creates an empty environment with only the SDK and its declared requirements."""

    def made(*extras: str) -> Path:
        folder = tmp_path / "environment"
        venv.create(folder, with_pip=False)
        [packages] = folder.glob("lib/python*/site-packages")
        with zipfile.ZipFile(wheels["lethe_sdk"]) as archive:
            archive.extractall(packages)
        for source, place in files_of(needed(asked_by(wheels["lethe_sdk"], *extras))):
            (packages / place).parent.mkdir(parents=True, exist_ok=True)
            (packages / place).symlink_to(source)
        return folder / "bin" / "python"

    return made


@pytest.mark.slow
def test_distributions_have_no_generic_package_names(wheels: dict[str, Path]) -> None:
    """The top-level packages of the distributions are `lethe` and `lethe_server`, never `app`, `worker` or
    `migrations`."""
    tops = {name: {one.split("/")[0] for one in zipfile.ZipFile(wheel).namelist()} for name, wheel in wheels.items()}
    ours = {name: {one for one in top if not one.endswith(".dist-info")} for name, top in tops.items()}
    assert ours == {"lethe_sdk": {"lethe"}, "lethe_server": {"lethe_server"}}


@pytest.mark.soak
def test_the_sdk_works_beside_a_package_app(
    tmp_path: Path, environment: Callable[..., Path], settings: Settings, admin_key: str
) -> None:
    """In an empty environment next to a package `app`, the SDK submits a request and verifies its certificate and the
    ledger without any server code. It loads numpy and scipy only to recompute numbers. The command line does the
    same."""
    python = environment("verify", "cli")
    ours = tmp_path / "project"
    (ours / "app").mkdir(parents=True)
    (ours / "app" / "__init__.py").write_text('whose = "customer"\n')
    (ours / "caller.py").write_text(textwrap.dedent(CALLER))
    rows = ours / "rows.npz"
    rows.write_bytes(npz())
    with processes.gateway(settings) as (_, address), processes.worker(settings):
        program = "import sys; sys.path.insert(0, '.'); exec(open('caller.py').read())"
        done = subprocess.run(
            [python, "-I", "-c", program, address, admin_key, rows],
            cwd=ours,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0
    command = [python, "-I", "-c", "from lethe.cli import main; main()", "ledger", "verify", "ledger.jsonl"]
    done = subprocess.run(command, cwd=ours, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("valid  2 entries of 1 models\n")
    exported = (ours / "ledger.jsonl").read_text()
    (ours / "ledger.jsonl").write_text(exported.replace('\\"records\\":1', '\\"records\\":0', 1))
    done = subprocess.run(command, cwd=ours, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ledger_corrupt: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.soak
def test_the_sdk_names_its_missing_extra(environment: Callable[..., Path]) -> None:
    """If the extra for the command line is not installed, a command fails with a one-line error that names the package
    to install."""
    python = environment()
    done = subprocess.run(
        [python, "-I", "-c", "from lethe.cli import main; main()", "certificate", "verify", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: typer is not installed; run: pip install 'lethe-sdk[cli]'\n"


def test_installed_processes_import_the_server(tmp_path: Path, wheels: dict[str, Path]) -> None:
    """The commands of an installed server, and the processes they start, import the server's packages as `app` and
    `worker`."""
    with zipfile.ZipFile(wheels["lethe_server"]) as archive:
        archive.extractall(tmp_path)
    program = (
        "import subprocess, sys; import lethe_server; import app, worker, migrations; print(app.__file__);"
        "print(subprocess.run([sys.executable, '-c', 'import worker; print(worker.__file__)'],"
        " capture_output=True, text=True).stdout, end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    inside = tmp_path / "lethe_server"
    assert done.stdout.splitlines() == [str(inside / "app/__init__.py"), str(inside / "worker/__init__.py")]
