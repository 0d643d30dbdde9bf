"""Links between pages are valid."""

import re
from pathlib import Path

from tests.tables import each

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
SOURCES = sorted(file for folder in ("app", "lethe", "worker") for file in (ROOT / folder).rglob("*.py"))
BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> list[str]:
    """Return the anchors that GitHub gives the page's headings."""
    headings = re.findall(r"^#{1,6} +(.+)$", prose(page), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    names = [re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts]
    return [f"{name}-{names[:at].count(name)}" if name in names[:at] else name for at, name in enumerate(names)]


@each("page", PAGES)
def test_links_resolve(page: Path) -> None:
    """Each link to a file in the repository names an existing file and, if it has an anchor, an existing
    heading in that file."""
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_programs_name_existing_pages() -> None:
    """Every documentation page that is named in a text or comment of the code exists."""
    named = {name for source in SOURCES for name in re.findall(r"\bdocs/[\w/-]+\.md\b", source.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
