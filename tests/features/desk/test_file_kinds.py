"""Kinds of files: the suffix and the bytes agree, or the file is refused."""

import pytest

from app.features.desk import file_kinds
from lethe.contract.problems import UploadTooLarge
from lethe.features.desk.contract import AttachmentInvalid, AttachmentKind
from tests.features.desk.attached import FILES, MAIL, PDF
from tests.tables import each


def examine(name: str, content: bytes, max_bytes: int = 1000) -> file_kinds.AttachmentFile:
    return file_kinds.examine(name, content, max_bytes=max_bytes)


@each("said", AttachmentKind)
def test_bytes_must_match_the_suffix(said: AttachmentKind) -> None:
    """A file is accepted if its bytes match its suffix, in upper or lower case, and refused if they belong to another
    file type. Only an e-mail file may also be plain text."""
    found = examine(f"a.{said.upper()}", FILES[said])
    assert (found.kind, found.content) == (said, FILES[said])
    for other in AttachmentKind:
        if other is not said:
            with pytest.raises(AttachmentInvalid):
                examine(f"a.{said}", FILES[other])


@each(
    ("name", "content"),
    [
        ("a.html", b"<script>alert(1)</script>"),
        ("a.svg", b"<svg/>"),
        ("a.pdf", b"<html>%PDF-1.7"),
        ("a.pdf", b""),
        ("a.txt", b"a\0b"),
        ("a.txt", "é".encode("latin-1")),
        ("a.txt", b"\x1b[31m"),
        ("a.eml", b"no header\r\n\r\ntext"),
        ("a.eml", b"Subject: none of a mail\r\n\r\n"),
        ("a.eml", b"From: x\r\nno colon\r\n\r\n"),
        ("a.eml", MAIL + b"\0"),
        ("pdf", PDF),
        ("", PDF),
        (".", PDF),
        ("a\u202efdp.pdf", PDF),
        ("a\nb.pdf", PDF),
        ("x" * 197 + ".pdf", PDF),
    ],
)
def test_invalid_files_are_refused(name: str, content: bytes) -> None:
    """A file is refused if it is empty, has an unknown type or a type other than its name indicates, or if its name
    contains invisible characters. The error quotes neither the name nor the content."""
    with pytest.raises(AttachmentInvalid) as refused:
        examine(name, content)
    assert refused.value.errors[0].path == "file"
    assert "alert" not in refused.value.line
    assert len(name) < 4 or name not in refused.value.line


def test_names_are_normalised() -> None:
    """A path is reduced to its last component, and combining characters in names are composed."""
    assert examine("C:\\letters\\a.pdf", PDF).name == "a.pdf"
    assert examine("../../etc/e\u0301.pdf", PDF).name == "é.pdf"
    assert examine("a.JPG", FILES[AttachmentKind.JPEG]).kind is AttachmentKind.JPEG


def test_the_maximum_size_is_accepted() -> None:
    """A file of exactly the maximum size is accepted, and a file with one byte more is refused."""
    assert examine("a.pdf", PDF, len(PDF)).content == PDF
    with pytest.raises(UploadTooLarge, match="LETHE_MAX_ATTACHMENT_BYTES"):
        examine("a.pdf", PDF, len(PDF) - 1)


def test_the_repr_reveals_nothing() -> None:
    """The repr of a file shows neither its name nor its bytes."""
    assert "Jane" not in repr(examine("Jane.pdf", PDF))
