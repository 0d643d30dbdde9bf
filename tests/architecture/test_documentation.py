"""Every page can be reached, and the front pages describe the repository correctly."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.proof.certificate import LIMITS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
PATH = re.compile(r"`([\w./-]+/[\w.-]+\.py)\b[^`\n]*`")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.DOTALL | re.MULTILINE)
MAX_PROSE_COLUMNS = 120
TREES = ("app", "lethe", "worker")
HAS_FEATURES = (ROOT / "app" / "features").exists()
"""Whether this is the whole repository, and not only its core."""


def linked(page: Path) -> set[Path]:
    """Return the documentation pages that a page links to."""
    links = (link for link in LINK.findall(page.read_text()) if ":" not in link)
    return {(page.parent / link).resolve() for link in links}


@pytest.mark.parametrize("folder", sorted({page.parent for page in DOCS.rglob("*.md")}), ids=lambda path: path.name)
def test_every_page_is_in_the_index_of_its_folder(folder: Path) -> None:
    """Each folder of docs/ has a README.md that links to every other page of the folder."""
    index = folder / "README.md"
    pages = set(folder.glob("*.md")) - {index}
    assert sorted(page.name for page in pages - linked(index)) == []


def test_every_index_is_reached_from_the_readme() -> None:
    """The README links to docs/README.md, which links to the index of each folder."""
    assert DOCS / "README.md" in linked(ROOT / "README.md")
    assert {folder / "README.md" for folder in DOCS.iterdir() if any(folder.glob("*.md"))} <= linked(DOCS / "README.md")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_open_with_prose(page: Path) -> None:
    """Each page has a title followed by a sentence that begins with a word."""
    title, blank, opening, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert re.match(r"(\*\*)?[A-Z]", opening), opening


def test_the_readme_is_short() -> None:
    """The README has at most 150 lines."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize(
    "page",
    sorted([ROOT / "README.md", ROOT / "SECURITY.md", *DOCS.rglob("*.md")]),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_prose_is_wrapped(page: Path) -> None:
    """A line of prose has at most 120 columns. Code blocks, tables, images and bare links are exempt."""
    lines = BLOCK.sub("", page.read_text()).splitlines()
    prose = [line for line in lines if not line.lstrip().startswith(("|", "![")) and " " in line.strip()]
    assert [line for line in prose if len(line) > MAX_PROSE_COLUMNS] == []


def features() -> set[str]:
    """Return the paths of all features as `features/<name>/`, without the tree that contains them."""
    inits = (init for tree in TREES for init in (ROOT / tree).glob("features/*/__init__.py"))
    return {f"features/{init.parent.name}/" for init in inits}


def core_packages() -> set[str]:
    """Return the paths of the packages of app, lethe and worker that belong to no feature."""
    inits = (init.relative_to(ROOT) for tree in TREES for init in (ROOT / tree).glob("*/__init__.py"))
    return {f"{init.parent}/" for init in inits} - {f"{tree}/features/" for tree in TREES}


def lines_of(*folders: Path) -> int:
    """Count the lines of Python below `folders`, excluding features inside a tree."""
    files = {file for folder in folders for file in folder.rglob("*.py")}
    trees = [ROOT / tree / "features" for tree in TREES if ROOT / tree in folders]
    return sum(file.read_text().count("\n") for file in files if not any(tree in file.parents for tree in trees))


def house() -> Iterator[str]:
    """Yield the paths listed in CONTRIBUTING.md's map of packages."""
    block = CONTRIBUTING.split("```text\n", 1)[1].split("```", 1)[0]
    top = ""
    for line in block.splitlines():
        if line.startswith("  "):
            yield top + line.split()[0]
        else:
            names = re.findall(r"\b\w+/", line) if line.count("/  ") > 1 else [line.split()[0]]
            top = names[-1]
            yield from names


def test_the_map_of_packages_is_complete() -> None:
    """CONTRIBUTING.md names every core package and every feature, and names no package that does not exist."""
    named = set(house()) - {"features/"}
    of_features = {path for path in named if path.startswith("features/")}
    assert [path for path in sorted(named - of_features) if not (ROOT / path).exists()] == []
    assert core_packages() <= named
    assert of_features == features() or not HAS_FEATURES


def commands(text: str) -> set[str]:
    return set(re.findall(r"\./dev ([a-z]+)", text))


def test_every_dev_command_is_documented() -> None:
    """CONTRIBUTING.md has one row for each command of ./dev, and no page names any other command."""
    there = set(re.findall(r"^    ([a-z]+)\)", (ROOT / "dev").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\| `\./dev ([a-z]+)", CONTRIBUTING, re.MULTILINE)) == there
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    assert set().union(*(commands(page.read_text()) for page in pages)) <= there


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages_name_existing_modules(page: Path) -> None:
    """Each module path in backticks on a page exists, except for the placeholder paths."""
    named = set(PATH.findall(page.read_text())) - {"app/x/y.py", "tests/app/x/test_y.py"}
    missing = [path for path in sorted(named) if not (ROOT / path).exists()]
    assert [path for path in missing if HAS_FEATURES or "/features/" not in path] == []


def test_stated_line_counts_are_current() -> None:
    """The line counts that docs/architecture.md states for the core packages and for each feature are correct to within
    a fifth."""
    page = (DOCS / "architecture.md").read_text()
    stated = dict(re.findall(r"^\| `([\w/]+)` \| ([\d,]+) \|", page, re.MULTILINE))
    rooms = {room.rstrip("/"): lines_of(ROOT / room) for room in core_packages() if not room.startswith("worker/")}
    rooms |= {room: lines_of(ROOT / room) for room in ("worker", "migrations")}
    rooms |= {room.rstrip("/"): lines_of(*(ROOT / tree / room for tree in TREES)) for room in features()}
    assert rooms.keys() <= stated.keys()
    assert stated.keys() == rooms.keys() or not HAS_FEATURES
    for room, lines in rooms.items():
        assert abs(int(stated[room].replace(",", "")) - lines) <= lines / 5, (room, lines)


def test_guarantees_page_quotes_every_limit() -> None:
    """docs/guarantees.md quotes each sentence of LIMITS, so that the page names every limitation of a certificate."""
    page = " ".join((DOCS / "guarantees.md").read_text().split())
    assert [limit for limit in LIMITS if limit not in page] == []
