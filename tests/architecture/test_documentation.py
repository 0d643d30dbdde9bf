"""A reader finds every page, and what the front pages say of the repository is so."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lethe.theorems import CALCULATOR

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)")
PATH = re.compile(r"`([\w./-]+/[\w.-]+\.py)\b[^`\n]*`")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def linked(page: Path) -> set[Path]:
    """The pages of ours to which a page has links."""
    links = (link for link in LINK.findall(page.read_text()) if ":" not in link)
    return {(page.parent / link).resolve() for link in links}


@pytest.mark.parametrize("folder", sorted({page.parent for page in DOCS.rglob("*.md")}), ids=lambda path: path.name)
def test_every_page_is_in_the_index_of_its_folder(folder: Path) -> None:
    """Each folder of docs/ has a README.md with a link to each of its other pages."""
    index = folder / "README.md"
    pages = set(folder.glob("*.md")) - {index}
    assert sorted(page.name for page in pages - linked(index)) == []


def test_every_index_is_reached_from_the_readme() -> None:
    """The README leads to docs/README.md, and that to the index of each folder."""
    assert DOCS / "README.md" in linked(ROOT / "README.md")
    assert {folder / "README.md" for folder in DOCS.iterdir() if any(folder.glob("*.md"))} <= linked(DOCS / "README.md")


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_pages_open_with_prose(page: Path) -> None:
    """Each page has a title, and under it a sentence that begins with a word."""
    title, blank, opening, *_ = page.read_text().splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert re.match(r"(\*\*)?[A-Z]", opening), opening


def test_the_readme_is_short() -> None:
    """The README has two hundred lines at most."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


def house() -> Iterator[str]:
    """The paths in the map of CONTRIBUTING.md."""
    block = CONTRIBUTING.split("```text\n", 1)[1].split("```", 1)[0]
    top = ""
    for line in block.splitlines():
        if line.startswith("  "):
            yield top + line.split()[0]
        else:
            names = re.findall(r"\b\w+/", line) if line.count("/  ") > 1 else [line.split()[0]]
            top = names[-1]
            yield from names


def test_the_map_of_the_house_is_complete() -> None:
    """CONTRIBUTING.md names each package of app, lethe and worker, each folder of the repository, and nothing else."""
    named = set(house())
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    packages = {
        f"{init.parent.relative_to(ROOT)}/"
        for top in ("app", "lethe", "worker")
        for init in ROOT.glob(f"{top}/*/__init__.py")
    }
    assert packages <= named


def commands(text: str) -> set[str]:
    return set(re.findall(r"\./dev ([a-z]+)", text))


def test_every_command_of_dev_is_explained() -> None:
    """CONTRIBUTING.md has a row for each command of ./dev, and pages name no other."""
    there = set(re.findall(r"^    ([a-z]+)\)", (ROOT / "dev").read_text(), re.MULTILINE))
    assert set(re.findall(r"^\| `\./dev ([a-z]+)", CONTRIBUTING, re.MULTILINE)) == there
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    assert set().union(*(commands(page.read_text()) for page in pages)) <= there


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda page: str(page.relative_to(ROOT))
)
def test_pages_name_modules_that_are_there(page: Path) -> None:
    """Each path of a module that a page names in backticks exists, but for the one that stands for any."""
    named = set(PATH.findall(page.read_text())) - {"app/x/y.py", "tests/app/x/test_y.py"}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_theorems_are_counted() -> None:
    """docs/accounting.md says how many theorems the calculator has."""
    assert f"evaluates {len(CALCULATOR)} theorems" in (DOCS / "accounting.md").read_text()


def test_the_lines_of_each_room_are_about_those_on_the_page() -> None:
    """docs/architecture.md names every room of the house, each with its lines to within a fifth."""
    said = dict(re.findall(r"^\| `([\w/]+)` \| ([\d,]+) \|", (DOCS / "architecture.md").read_text(), re.MULTILINE))
    rooms = {"worker", "migrations"}
    for top in ("app", "lethe"):
        rooms |= {f"{top}/{file.parent.name}" for file in (ROOT / top).glob("*/*.py")}
    assert said.keys() == rooms
    for room, number in said.items():
        lines = sum(len(file.read_text().splitlines()) for file in (ROOT / room).rglob("*.py"))
        assert abs(int(number.replace(",", "")) - lines) <= lines / 5, (room, lines)
