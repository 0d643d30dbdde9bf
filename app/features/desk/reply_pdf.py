"""A reply as a PDF: the reply, and on a page of its own what was erased and how to check the certificates.

The font (Noto Sans, under the OFL) has Latin, Greek and Cyrillic. A reply with other characters is refused: a box in
place of a name would be worse than no PDF. Only the font is written to disk, because fpdf2 reads fonts from files.
"""

import functools
import io
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fpdf
import pymupdf_fonts
from fontTools.ttLib import TTFont

from app.features.desk.replies import Reply
from lethe.contract.problems import ReplyUnprintable

_FONTS = {"": "notos", "B": "notosbo"}
_FAMILY = "notosans"
# Margin, height of a line and gap between paragraphs, in mm.
_MARGIN, _LINE, _GAP = 25, 6, 3
# Both libraries would log the characters of the document.
logging.getLogger("fontTools").setLevel(logging.ERROR)
logging.getLogger("fpdf").setLevel(logging.ERROR)


def as_pdf(reply: Reply, *, folder: Path) -> bytes:
    """Return a reply as a PDF; `folder` is for the font file. Raises `ReplyUnprintable`."""
    wording = reply.wording
    printable = _printable()
    if any(ord(char) not in printable for line in _lines(reply) for char in line if char not in "\n\t"):
        raise ReplyUnprintable(
            "The reply has characters that the font of the PDF does not have: it has Latin, Greek and Cyrillic. Take "
            "it as text, and print that."
        )
    with tempfile.TemporaryDirectory(dir=folder) as fonts:
        pdf = fpdf.FPDF(format="A4")
        for style, name in _FONTS.items():
            path = Path(fonts) / f"{name}.ttf"
            path.write_bytes(_font(name))
            pdf.add_font(_FAMILY, style, path)
        pdf.set_margin(_MARGIN)
        pdf.set_auto_page_break(auto=True, margin=_MARGIN)
        pdf.set_lang(reply.language.value)
        pdf.set_title(reply.subject)
        pdf.add_page()
        for line in reply.head:
            _write(pdf, line)
        _write(pdf, reply.subject, size=13, style="B")
        proofs = [wording.proof, *(f"• {sentence}" for sentence in reply.proofs)] if reply.proofs else []
        for line in (wording.greeting, *reply.paragraphs, *proofs, *reply.closing):
            _write(pdf, line)
        if reply.page:
            pdf.add_page()
            _write(pdf, wording.page, size=13, style="B")
            for line in reply.page:
                _write(pdf, line)
        return bytes(pdf.output())


def _write(pdf: fpdf.FPDF, line: str, *, size: int = 11, style: str = "") -> None:
    pdf.set_font(_FAMILY, style, size)
    pdf.multi_cell(0, _LINE, line.replace("\t", " "), align="L", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(_GAP)


def _lines(reply: Reply) -> Iterator[str]:
    wording = reply.wording
    yield from (reply.subject, wording.greeting, wording.proof, wording.page, "•")
    yield from (*reply.head, *reply.paragraphs, *reply.proofs, *reply.closing, *reply.page)


@functools.cache
def _font(name: str) -> bytes:
    return bytes(pymupdf_fonts.fontbuffers[name]())


@functools.cache
def _printable() -> frozenset[int]:
    """Return the code points that all font styles can render."""
    maps = [TTFont(io.BytesIO(_font(name))).getBestCmap() for name in _FONTS.values()]
    return frozenset(set(maps[0]).intersection(*maps[1:]))
