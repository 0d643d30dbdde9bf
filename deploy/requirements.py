"""Print what pyproject.toml asks for, with the extras named: packages are installed, and cached, before the sources."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
for wanted in (project["dependencies"], *(project["optional-dependencies"][extra] for extra in sys.argv[1:])):
    sys.stdout.writelines(f"{requirement}\n" for requirement in wanted)
