"""The deployment that users run: the project's Dockerfile and docker-compose.yml, built and started unchanged."""

import base64
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lethe import Client
from lethe.contract.models import ModelOut
from lethe.contract.problems import WeightsDestroyed
from lethe.reading import to_json
from tests.deploy.engine import ROOT, Engine, NoEngine, engine
from tests.ports import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]  # building the images takes minutes on a busy machine

ADULT = ROOT / "examples" / "adult"
SERVICES = ("database", "redis", "gateway", "accounting", "edge", "worker", "sweeper")


_NET_BIND_SERVICE = 1 << 10


class Deployment:
    """`docker compose` in its own project, on free ports of the loopback."""

    def __init__(self, at: Engine) -> None:
        self._at = at
        self.port, self.accounting_port = free_port(), free_port()
        self._environment = at.environment | {"PORT": str(self.port), "ACCOUNTING_PORT": str(self.accounting_port)}
        self._project = f"lethe-test-{os.getpid()}"

    def compose(
        self, *arguments: str, files: tuple[Path, ...] = (), check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments, files=files),
            env=self._environment,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout[-3000:] + done.stderr[-3000:]
        return done

    def up(self, *options: str) -> None:
        """Start the deployment as docs/deployment.md describes. If it fails, show the containers' logs."""
        done = self.compose("up", "--detach", "--wait", *options, check=False)
        if done.returncode != 0:
            pytest.fail(done.stderr[-3000:] + self.compose("logs", "--no-color", "--tail", "30").stdout)

    def command(self, *arguments: str, files: tuple[Path, ...] = ()) -> list[str]:
        named = [part for file in (ROOT / "docker-compose.yml", *self._at.files, *files) for part in ("-f", str(file))]
        return [*self._at.compose, "--project-name", self._project, *named, *arguments]

    def inspect(self, service: str) -> Any:
        """Return the output of `docker inspect` for the service's single container, whether or not it is running."""
        container = self.compose("ps", "--all", "--quiet", service).stdout.strip()
        found = subprocess.run(
            ["docker", "inspect", container], env=self._environment, capture_output=True, text=True, check=True
        )
        return json.loads(found.stdout)[0]

    def inside(self, service: str, *command: str, check: bool = True) -> str:
        return self.compose("exec", "-T", service, *command, check=check).stdout

    @contextmanager
    def shell(self, service: str) -> Iterator[Callable[[str], None]]:
        """Open a shell inside the service's container in advance, so that commands sent to it run at once."""
        command = self.command("exec", "-T", service, "sh")
        with subprocess.Popen(
            command, env=self._environment, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin

            def tell(line: str) -> None:
                assert process.stdin
                process.stdin.write(f"{line}\n")
                process.stdin.flush()

            yield tell
            process.stdin.close()
            process.wait(120)


def wait(what: str, holds: Callable[[], Any], *, seconds: float, pause: float = 0.2) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"Expected within {seconds} s: {what}"
        time.sleep(pause)
    return found


def test_the_deployment_forgets_and_heals(tmp_path: Path) -> None:
    """A single command starts the whole hardened deployment, which forgets people, survives killed workers, stops
    gracefully and restarts without loss."""
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}")

    try:
        with engine() as at:
            tell(f"{at.name} is up")
            deployment = Deployment(at)
            try:
                deployment.up("--build")
                tell("built and up")
                is_hardened(deployment)
                with Client(f"http://127.0.0.1:{deployment.port}", admin_key(deployment)) as client:
                    model = learns_though_a_worker_is_killed(deployment, client)
                    tell("learned, though the worker was killed")
                    forgets(deployment, client, model, tmp_path)
                    tell("forgot, and the certificate verifies")
                    forgets_though_a_worker_is_killed(deployment, client)
                    tell("forgot a hundred people, though the worker was killed")
                    stops_gracefully(deployment, client, model.dataset_id)
                    tell("stopped gracefully")
                comes_back_whole(deployment)
                tell("came back after down and up")
                says_nothing_about_anybody(deployment)
                crash_loop_is_seen(deployment, tmp_path)
                tell("a crash-looping worker is seen")
            finally:
                deployment.compose("down", "--volumes", "--timeout", "5", check=False)
    except NoEngine as error:
        pytest.skip(str(error))
    tell("gone")


def is_hardened(deployment: Deployment) -> None:
    """Check that every container runs as an unprivileged user, without capabilities and on a read-only root file
    system."""
    for service in SERVICES:
        status = deployment.inside(service, "cat", "/proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert set(fields["Uid"].split()) <= {"999", "10001"}, service
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0, service
        assert int(fields["CapBnd"], 16) == (_NET_BIND_SERVICE if service == "edge" else 0), service
        assert fields["NoNewPrivs"].strip() == "1", service
        assert deployment.compose("exec", "-T", service, "touch", "/written", check=False).returncode != 0, service
        assert "password" not in json.dumps(deployment.inspect(service)["Config"]["Env"]).lower().replace(
            "_password_file", ""
        )
    without_torch = "import app.main, importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is not None)"
    deployment.inside("gateway", "python", "-c", without_torch)
    refused = deployment.inside("accounting", "python", "-c", WRITE_AS_READER)
    assert refused.split() == ["lethe_reader", "InsufficientPrivilege"]


WRITE_AS_READER = """
import sqlalchemy as sa
from app.config import Settings
engine = sa.create_engine(Settings().resolved_database_url())
with engine.connect() as connection:
    print(connection.scalar(sa.text("SELECT current_user")))
    connection.rollback()
    connection.execute(sa.text("SET default_transaction_read_only = off"))
    connection.commit()
    try:
        connection.execute(sa.text("DELETE FROM runs"))
    except sa.exc.ProgrammingError as error:
        print(type(error.orig).__name__)
"""


def admin_key(deployment: Deployment) -> str:
    return deployment.inside("gateway", "cat", "/run/admin/admin.key").strip()


def learns_though_a_worker_is_killed(deployment: Deployment, client: Client) -> ModelOut:
    """Check that a worker killed during training is restarted with the image's compiled code, and that the model is
    still trained."""
    people = client.datasets.upload(ADULT / "train.csv", name="adult", schema=ADULT / "schema.json")
    with deployment.shell("worker") as tell:
        model = client.models.create(name="income", dataset_id=people.id)
        kill_at_work(client, tell)
    wait("the worker is started again", lambda: deployment.inspect("worker")["RestartCount"], seconds=300)
    learned = client.models.wait(model.id, timeout_seconds=600)
    assert learned.status == "live"
    assert {run.status for run in client.runs.list()} == {"abandoned", "published"}
    deployment.inside("worker", "diff", "--recursive", "/opt/lethe/numba", "/tmp/numba")
    return learned


def kill_at_work(client: Client, tell: Callable[[str], None]) -> None:
    def running() -> bool:
        return any(run.status == "running" for run in itertools.islice(client.runs.list(), 5))

    wait("a run is under way", running, seconds=300, pause=0.1)
    tell("kill -9 $(cat /proc/1/task/1/children)")


def forgets(deployment: Deployment, client: Client, model: ModelOut, folder: Path) -> None:
    """Check that a request gets a certificate, that the certificate verifies offline, and that both services report the
    same numbers."""
    request = client.deletion_requests.create(subject_id="train-00042", regulation="gdpr")
    assert client.deletion_requests.wait(request.id, timeout_seconds=600).outcome == "forgotten"
    certificates = to_json(client.deletion_requests.certificates(request.id))
    (folder / "certificate.json").write_text(json.dumps({"certificates": certificates}))
    with Client(f"http://127.0.0.1:{deployment.accounting_port}", admin_key(deployment)) as accounting:
        assert accounting.accounting.model(model.id) == client.accounting.model(model.id)
        (folder / "jwks.json").write_text(json.dumps(accounting.certificates.public_keys()))
    lethe = [str(Path(sys.executable).with_name("lethe")), "certificate", "verify", str(folder / "certificate.json")]
    verified = subprocess.run(
        [*lethe, "--jwks", str(folder / "jwks.json")], capture_output=True, text=True, check=False
    )
    assert "valid" in verified.stdout, verified.stderr
    seen = deployment.inside("accounting", "find", "/var/lib/lethe", "-type", "f").split()
    assert {str(Path(file).parent) for file in seen} == {"/var/lib/lethe/public"}
    with pytest.raises(WeightsDestroyed):
        client.models.weights(model.id, 1)


def forgets_though_a_worker_is_killed(deployment: Deployment, client: Client) -> None:
    """Check that requests accepted while no worker was running are each certified once, even if their worker is then
    killed."""
    deployment.compose("stop", "worker")
    everybody = [f"train-{number:05d}" for number in range(1000, 1100)]
    requests = [client.deletion_requests.create(subject_id=subject) for subject in everybody]
    deployment.compose("start", "worker")
    with deployment.shell("worker") as tell:
        kill_at_work(client, tell)
    for request in requests:
        assert client.deletion_requests.wait(request.id, timeout_seconds=600).status == "completed"
        [certificate] = client.deletion_requests.certificates(request.id)
        signed = certificate.jws.split(".")[1]
        statement = json.loads(base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)))
        assert statement["request"]["id"] == request.id
    assert "valid" in deployment.inside("gateway", "lethe", "ledger", "verify")


def stops_gracefully(deployment: Deployment, client: Client, dataset_id: str) -> None:
    """Check that a worker that is told to stop finishes its run first, and that requests made in the meantime wait for
    the next worker."""
    model = client.models.create(name="another", dataset_id=dataset_id)

    def steps_done() -> int:
        progress = client.models.get(model.id).progress
        return progress.steps_done if progress else 0

    wait("it is being learned", steps_done, seconds=300, pause=0.1)
    deployment.compose("stop", "worker")
    assert deployment.inspect("worker")["State"]["ExitCode"] == 0
    assert client.models.get(model.id).status == "live"


def comes_back_whole(deployment: Deployment) -> None:
    """Check that a request survives taking the deployment down and completes once the deployment is up again."""
    key = admin_key(deployment)
    with Client(f"http://127.0.0.1:{deployment.port}", key) as client:
        request = client.deletion_requests.create(subject_id="train-02000")
    deployment.compose("down", "--timeout", "20")
    deployment.up()
    with Client(f"http://127.0.0.1:{deployment.port}", key) as client:
        assert client.deletion_requests.wait(request.id, timeout_seconds=600).status == "completed"
    assert "valid" in deployment.inside("gateway", "lethe", "ledger", "verify")


def says_nothing_about_anybody(deployment: Deployment) -> None:
    """Check that no log of any container names a person."""
    assert "train-0" not in deployment.compose("logs", "--no-color").stdout


def crash_loop_is_seen(deployment: Deployment, folder: Path) -> None:
    """Check that `up --wait` fails for a worker that dies at every start."""
    (folder / "broken.yml").write_text("services: { worker: { environment: { LETHE_LOG_LEVEL: loud } } }\n")
    up = ("up", "--detach", "--no-deps", "--wait", "--wait-timeout", "40", "worker")
    assert deployment.compose(*up, files=(folder / "broken.yml",), check=False).returncode != 0
    state = deployment.inspect("worker")
    assert state["RestartCount"] > 0
    assert state["State"]["Health"]["Status"] != "healthy"
