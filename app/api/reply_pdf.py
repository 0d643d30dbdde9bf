"""A reply as a PDF: the reply, and on a page of its own what was erased and how to check it.

Its font (Noto Sans, under the OFL) has Latin, Greek and Cyrillic. What it does not have is refused: a box in the place
of a name would be worse than no PDF. The font alone is on the disk meanwhile, because fpdf2 reads it there.
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

from app.api.reply_texts import Reply
from lethe.contract.problems import ReplyUnprintable

_FONTS = {"": "notos", "B": "notosbo"}
_FAMILY = "notosans"
_MARGIN, _LINE, _GAP = 25, 6, 3  # mm
logging.getLogger("fontTools").setLevel(logging.ERROR)  # it names the characters that a document has
logging.getLogger("fpdf").setLevel(logging.ERROR)


def as_pdf(reply: Reply, *, folder: Path) -> bytes:
    """Raises `ReplyUnprintable`. `folder`: for the font."""
    wording = reply.wording
    known = _characters()
    if any(ord(one) not in known for line in _lines(reply) for one in line if one not in "\n\t"):
        raise ReplyUnprintable(
            "The reply has characters that the font of the PDF does not have: it has Latin, Greek and Cyrillic. Take "
            "it as text, and print that."
        )
    with tempfile.TemporaryDirectory(dir=folder) as fonts:
        made = fpdf.FPDF(format="A4")
        for style, name in _FONTS.items():
            path = Path(fonts) / f"{name}.ttf"
            path.write_bytes(_font(name))
            made.add_font(_FAMILY, style, path)
        made.set_margin(_MARGIN)
        made.set_auto_page_break(auto=True, margin=_MARGIN)
        made.set_lang(reply.language.value)
        made.set_title(reply.subject)
        made.add_page()
        for line in reply.head:
            _put(made, line)
        _put(made, reply.subject, size=13, style="B")
        proofs = [wording.proof, *(f"• {one}" for one in reply.proofs)] if reply.proofs else []
        for line in (wording.greeting, *reply.paragraphs, *proofs, *reply.closing):
            _put(made, line)
        if reply.page:
            made.add_page()
            _put(made, wording.page, size=13, style="B")
            for line in reply.page:
                _put(made, line)
        return bytes(made.output())


def _put(made: fpdf.FPDF, line: str, *, size: int = 11, style: str = "") -> None:
    made.set_font(_FAMILY, style, size)
    made.multi_cell(0, _LINE, line.replace("\t", " "), align="L", new_x="LMARGIN", new_y="NEXT")
    made.ln(_GAP)


def _lines(reply: Reply) -> Iterator[str]:
    wording = reply.wording
    yield from (reply.subject, wording.greeting, wording.proof, wording.page, "•")
    yield from (*reply.head, *reply.paragraphs, *reply.proofs, *reply.closing, *reply.page)


@functools.cache
def _font(name: str) -> bytes:
    return bytes(pymupdf_fonts.fontbuffers[name]())


@functools.cache
def _characters() -> frozenset[int]:
    """Those that every style has."""
    maps = [TTFont(io.BytesIO(_font(name))).getBestCmap() for name in _FONTS.values()]
    return frozenset(set(maps[0]).intersection(*maps[1:]))
