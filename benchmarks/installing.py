"""What installing the SDK brings: packages, megabytes and seconds, into an empty environment, by pip.

The wheel of `lethe-sdk` is built from this checkout, everything is downloaded first, and pip installs it without the
network (it compiles bytecode, as it does by default). Beside it stands mlflow-skinny, the small SDK of a model
registry. Prints the table of docs/sdk.md.
"""

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).parents[1]
ASKED = (
    "lethe-sdk",
    "lethe-sdk[verify]",
    "lethe-sdk[tables]",
    "lethe-sdk[cli]",
    "lethe-sdk[verify,cli]",
    "mlflow-skinny",
)


def main() -> None:
    table = Table("installed", "packages", "MB", "seconds")
    with tempfile.TemporaryDirectory(prefix="lethe-installing-") as name:
        folder = Path(name)
        build = ["hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        run([sys.executable, "-m", *build], ROOT / "lethe")
        get = [
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--find-links",
            str(folder),
            "--dest",
            str(folder),
        ]
        run([sys.executable, "-m", *get, *ASKED], ROOT)
        for asked in track(ASKED, description="Installing", transient=True):
            table.add_row(escape(asked), *installed(asked, folder, folder / f"environment-{ASKED.index(asked)}"))
    Console().print(table)


def installed(asked: str, wheels: Path, environment: Path) -> tuple[str, str, str]:
    """The number of packages, their size, and how long it took."""
    venv.create(environment, with_pip=False)
    python, [packages] = environment / "bin" / "python", environment.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    started = time.perf_counter()
    run([*pip, "--no-index", "--find-links", str(wheels), asked], wheels)
    seconds = time.perf_counter() - started
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    return str(len(list(packages.glob("*.dist-info")))), f"{size / 1e6:.0f}", f"{seconds:.1f}"


def run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    main()
