"""Write what the images install, with the hashes of its files: deploy/gateway.lock and deploy/worker.lock.

`./dev lock` runs it where everything is installed. The versions are those of constraints.txt. torch is left out: it is
another file on each index (CPU, CUDA). What it asks for is in the worker's lock, so that for the CPU it alone is added.
"""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
IMAGES = {"gateway": ["postgres"], "worker": ["postgres", "worker"]}
_OF_CUDA = ("cuda", "nvidia", "triton")
HEAD = """\
# What the image of the {image} installs, and nothing else: pip install --require-hashes --no-deps --requirement {file}
# Made from pyproject.toml and constraints.txt by `./dev lock`, with the hashes of PyPI.
"""


def wanted(extras: list[str]) -> list[str]:
    """Return the requirements of the project with these extras, with torch replaced by its own requirements here."""
    server, sdk = (
        tomllib.loads((ROOT / file).read_text())["project"] for file in ("pyproject.toml", "lethe/pyproject.toml")
    )
    asked = [*sdk["dependencies"], *server["dependencies"]]
    asked += [one for extra in extras for one in server["optional-dependencies"][extra]]
    # Its wheel is built beside the server's; its extras name one another.
    while own := next((one for one in asked if Requirement(one).name == "lethe-sdk"), None):
        asked.remove(own)
        asked += [one for extra in sorted(Requirement(own).extras) for one in sdk["optional-dependencies"][extra]]
    found = [one for one in asked if Requirement(one).name != "torch"]
    if len(found) < len(asked):
        of_torch = map(Requirement, importlib.metadata.requires("torch") or ())
        here = [one for one in of_torch if one.marker is None or one.marker.evaluate({"extra": ""})]
        found += [f"{one.name}{one.specifier}" for one in here if not one.name.startswith(_OF_CUDA)]
    return found


def main() -> None:
    for image, extras in IMAGES.items():
        file = Path(__file__).with_name(f"{image}.lock")
        compiled = subprocess.run(  # noqa: S603  what this file says
            [
                *(
                    Path(sys.executable).with_name("uv"),
                    "pip",
                    "compile",
                    "-",
                    "--quiet",
                    "--no-header",
                    "--no-annotate",
                ),
                *("--python-platform", "linux", "--python-version", "3.11.0", "--generate-hashes"),
                *("--constraint", ROOT / "constraints.txt"),
            ],
            input="\n".join(wanted(extras)),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        file.write_text(HEAD.format(image=image, file=file.name) + compiled.stdout)


if __name__ == "__main__":
    main()
