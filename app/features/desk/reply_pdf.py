"""A reply as a PDF, laid out for a window envelope (DIN 5008, form B), with an annex about what was erased.

The embedded font (Noto Sans, under the OFL) covers Latin, Greek and Cyrillic. A reply with other characters is refused:
a box in place of a name would be worse than no PDF. Only the font is written to disk, because fpdf2 reads fonts from
files. Identical replies yield identical bytes.
"""

import datetime
import functools
import io
import logging
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fpdf
import pymupdf_fonts
from fontTools.ttLib import TTFont

from app.features.desk.replies import Reply
from lethe.features.desk.contract import ReplyUnprintable

_FONTS = {"": "notos", "B": "notosbo"}
_FAMILY = "notosans"
# Margins, height of a line and gap between paragraphs, in mm.
_LEFT, _RIGHT, _TOP, _BOTTOM, _LINE, _GAP = 25, 20, 25, 25, 5.2, 2.6
# The address field is 80 mm wide at 45 mm from the top: 17.7 mm with the sender, and below that six lines of address.
_ADDRESS_TOP, _ADDRESS_WIDTH, _ADDRESS_LINE, _SENDER_HEIGHT = 45, 80, 4.5, 17.7
_MAX_ADDRESS_LINES = 6
_INFO_LEFT, _INFO_TOP, _INFO_WIDTH = 125, 50, 65
_SUBJECT_TOP = 98.5
_MARKS = ((105, 4), (148.5, 6), (210, 4))
"""Folding and punching marks on the left edge: distance from the top and length, in mm."""
# Both libraries would log the characters of the document.
logging.getLogger("fontTools").setLevel(logging.ERROR)
logging.getLogger("fpdf").setLevel(logging.ERROR)


class Document(fpdf.FPDF):
    """A4 document with the embedded font, numbered pages, and the language of its text."""

    def __init__(self, *, title: str, language: str, numbered: str, on: datetime.date) -> None:
        super().__init__(format="A4")
        self._numbered = numbered
        self.set_margins(_LEFT, _TOP, _RIGHT)
        self.set_auto_page_break(auto=True, margin=_BOTTOM)
        self.set_lang(language)
        self.set_title(title)
        # The time of production would give equal documents different bytes.
        self.set_creation_date(datetime.datetime.combine(on, datetime.time(), datetime.UTC))

    def footer(self) -> None:
        self.set_y(-15)
        self.set_font(_FAMILY, "", 8)
        self.cell(0, 5, self._numbered.format(page=self.page_no(), pages="{nb}"), align="R")

    def write_lines(self, line: str, *, size: float = 11, style: str = "", height: float = _LINE) -> None:
        """Write a paragraph followed by a gap."""
        self.set_font(_FAMILY, style, size)
        self.multi_cell(0, height, line.replace("\t", " "), align="L", new_x="LMARGIN", new_y="NEXT")
        self.ln(_GAP)

    def write_heading(self, line: str, *, level: int = 0) -> None:
        """Write a heading, and add it to the document's outline."""
        self.start_section(line, level=level)
        self.write_lines(line, size=13 - 2 * level, style="B", height=_LINE + 1)


@contextmanager
def opened_for(reply: Reply, folder: Path, *, title: str) -> Iterator[Document]:
    """Yield an empty document in a reply's language. Font files are kept under `folder` until the block ends."""
    with tempfile.TemporaryDirectory(dir=folder) as fonts:
        document = Document(title=title, language=reply.language.value, numbered=reply.wording.numbered, on=reply.on)
        for style, name in _FONTS.items():
            path = Path(fonts) / f"{name}.ttf"
            path.write_bytes(_font(name))
            document.add_font(_FAMILY, style, path)
        yield document


def require_printable(lines: Iterable[str]) -> None:
    """Raise `ReplyUnprintable` if a line contains characters that the font lacks."""
    printable = _printable()
    if any(ord(char) not in printable for line in lines for char in line if char not in "\n\t"):
        raise ReplyUnprintable(
            "The reply has characters that the font of the PDF does not have: it has Latin, Greek and Cyrillic. Take "
            "it as text, and print that."
        )


def as_pdf(reply: Reply, *, folder: Path) -> bytes:
    """Return a reply as a PDF. The font is temporarily written to `folder`. Raises `ReplyUnprintable`."""
    require_printable(lines_of(reply))
    with opened_for(reply, folder, title=reply.subject) as document:
        write_reply(document, reply)
        return bytes(document.output())


def write_reply(document: Document, reply: Reply) -> None:
    """Write the reply and its annex, starting on a new page."""
    wording = reply.wording
    document.add_page()
    _write_marks(document)
    for line in reply.head:
        document.set_y(_TOP)
        document.write_lines(line, style="B")
    _write_address(document, reply)
    _write_information(document, reply)
    document.set_xy(_LEFT, max(_SUBJECT_TOP, document.get_y()))
    document.write_lines(reply.subject, style="B")
    document.ln(_LINE)
    proofs = [wording.proof, *(f"• {sentence}" for sentence in reply.proofs)] if reply.proofs else []
    for line in (reply.salutation, *reply.paragraphs, *proofs):
        document.write_lines(line)
    _write_closing(document, reply)
    if reply.page:
        document.add_page()
        document.write_heading(wording.page)
        for line in reply.page:
            document.write_lines(line)


def _write_marks(document: Document) -> None:
    document.set_line_width(0.1)
    for y, length in _MARKS:
        document.line(5, y, 5 + length, y)


def _write_address(document: Document, reply: Reply) -> None:
    """Write the sender in small print and the recipient in the window. A recipient of many lines is set smaller."""
    if reply.sender and reply.recipient:
        document.set_xy(_LEFT, _ADDRESS_TOP + _SENDER_HEIGHT - 4.5)
        document.set_font(_FAMILY, "", 7)
        document.cell(_ADDRESS_WIDTH, 4, _cut(document, reply.sender), border="B")
    document.set_xy(_LEFT, _ADDRESS_TOP + _SENDER_HEIGHT + 0.5)
    size = 10 if len(reply.recipient) <= _MAX_ADDRESS_LINES else 8
    height = _ADDRESS_LINE * min(1.0, _MAX_ADDRESS_LINES / max(1, len(reply.recipient)))
    document.set_font(_FAMILY, "", size)
    for line in reply.recipient:
        document.multi_cell(_ADDRESS_WIDTH, height, line, align="L", new_x="LEFT", new_y="NEXT")


def _cut(document: Document, line: str) -> str:
    """Return the line, shortened if necessary to fit the address field."""
    while document.get_string_width(line) > _ADDRESS_WIDTH - 2:
        line = f"{line.rstrip('…')[:-1]}…"
    return line


def _write_information(document: Document, reply: Reply) -> None:
    """Write the case number, place and date to the right of the address."""
    below = document.get_y()
    document.set_xy(_INFO_LEFT, _INFO_TOP)
    for size, line in ((8, f"{reply.wording.reference}"), (10, reply.case), (10, ""), (10, reply.dated)):
        document.set_font(_FAMILY, "", size)
        document.multi_cell(_INFO_WIDTH, _ADDRESS_LINE, line, align="L", new_x="LEFT", new_y="NEXT")
    document.set_y(max(below, document.get_y()) + _GAP)


def _write_closing(document: Document, reply: Reply) -> None:
    """Write the closing formula, space for a signature and the signer's lines on one page, followed by the contact."""
    signature, *rest = reply.closing
    formula, *names = signature.split("\n")
    if document.will_page_break(_LINE * (7 + len(names))):
        document.add_page()
    document.write_lines(formula)
    if names:
        document.ln(3 * _LINE)
        document.write_lines("\n".join(names))
    for line in rest:
        document.write_lines(line, size=9, height=_LINE - 0.6)


def lines_of(reply: Reply) -> Iterator[str]:
    """Yield every text in a reply's PDF."""
    wording = reply.wording
    yield from (reply.subject, reply.salutation, wording.proof, wording.page, "•", wording.reference, reply.dated)
    yield from (*reply.head, *reply.recipient, *reply.paragraphs, *reply.proofs, *reply.closing, *reply.page)


@functools.cache
def _font(name: str) -> bytes:
    return bytes(pymupdf_fonts.fontbuffers[name]())


@functools.cache
def _printable() -> frozenset[int]:
    """Return the code points that all font styles can render."""
    maps = [TTFont(io.BytesIO(_font(name))).getBestCmap() for name in _FONTS.values()]
    return frozenset(set(maps[0]).intersection(*maps[1:]))
