"""The kinds of files that may be attached: a closed set, told by the end of a name and by the bytes, which must agree.

Nothing here reads more of a file than says what it is: it is kept, and handed out to be saved, never shown.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lethe.contract.problems import AttachmentInvalid, FieldError, UploadTooLarge
from lethe.contract.request_attachments import LONGEST_NAME
from lethe.contract.sets import AttachmentKind

MEDIA_TYPES: Mapping[AttachmentKind, str] = {
    AttachmentKind.PDF: "application/pdf",
    AttachmentKind.PNG: "image/png",
    AttachmentKind.JPEG: "image/jpeg",
    AttachmentKind.TXT: "text/plain; charset=utf-8",
    AttachmentKind.EML: "message/rfc822",
}
"""The media type of each, whatever its sender called it."""
_ENDS = {one.value: one for one in AttachmentKind} | {"jpg": AttachmentKind.JPEG}
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Characters that are not seen in a name, or that reverse the order of what is."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_HEADER = re.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*\r?\n)+(?:\r?\n|\Z)")
_OF_MAIL = re.compile(rb"^(?:from|date|received|message-id)[ \t]*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A file that may be kept."""

    name: str = field(repr=False)
    kind: AttachmentKind
    content: bytes = field(repr=False)


def examine(name: str, content: bytes, *, most_bytes: int) -> Examined:
    """Say what a file is. Raises `AttachmentInvalid`, `UploadTooLarge`; neither quotes the name."""
    if len(content) > most_bytes:
        message = f"An attachment has at most {most_bytes} bytes (LETHE_MAX_ATTACHMENT_BYTES). Nothing was stored."
        raise UploadTooLarge(message, [FieldError("file", f"expected at most {most_bytes} bytes")])
    plain = unicodedata.normalize("NFC", re.split(r"[/\\]", name)[-1]).strip()
    if not plain or len(plain) > LONGEST_NAME or any(unicodedata.category(one) in _UNSEEN for one in plain):
        raise _refused(f"expected a file whose name has 1 to {LONGEST_NAME} characters that are seen")
    kind = _ENDS.get(plain.rpartition(".")[2].lower()) if "." in plain else None
    if kind is None:
        raise _refused("expected a name that ends in .pdf, .png, .jpeg, .jpg, .txt or .eml")
    if not content:
        raise _refused("is empty")
    if not _IS_OF[kind](content):
        raise _refused(f"is not what the end of its name says: expected {_EXPECTED[kind]}")
    return Examined(name=plain, kind=kind, content=content)


def _refused(what: str) -> AttachmentInvalid:
    return AttachmentInvalid("The file cannot be attached. Nothing was stored.", [FieldError("file", what)])


def _is_text(content: bytes) -> bool:
    if _CONTROL.search(content):
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_mail(content: bytes) -> bool:
    """Return True for header fields to an empty line, one of which a mail has; a body may be in any charset."""
    header = _HEADER.match(content)
    return header is not None and b"\0" not in content and _OF_MAIL.search(header[0]) is not None


_IS_OF: Mapping[AttachmentKind, Callable[[bytes], bool]] = {
    AttachmentKind.PDF: lambda content: content.startswith(b"%PDF-"),
    AttachmentKind.PNG: lambda content: content.startswith(b"\x89PNG\r\n\x1a\n"),
    AttachmentKind.JPEG: lambda content: content.startswith(b"\xff\xd8\xff"),
    AttachmentKind.TXT: _is_text,
    AttachmentKind.EML: _is_mail,
}
_EXPECTED: Mapping[AttachmentKind, str] = {
    AttachmentKind.PDF: "a PDF",
    AttachmentKind.PNG: "a PNG",
    AttachmentKind.JPEG: "a JPEG",
    AttachmentKind.TXT: "text in UTF-8, without control characters",
    AttachmentKind.EML: "a mail (RFC 5322), with its header",
}
