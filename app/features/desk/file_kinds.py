"""Kinds of files that can be attached to a request: a closed set, recognised by suffix and content, which must agree.

Only a file's kind is checked, not the rest of its content: attachments are downloaded, never displayed.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lethe.contract.problems import FieldError, UploadTooLarge
from lethe.features.desk.contract import MAX_NAME_LENGTH, AttachmentInvalid, AttachmentKind

MEDIA_TYPES: Mapping[AttachmentKind, str] = {
    AttachmentKind.PDF: "application/pdf",
    AttachmentKind.PNG: "image/png",
    AttachmentKind.JPEG: "image/jpeg",
    AttachmentKind.TXT: "text/plain; charset=utf-8",
    AttachmentKind.EML: "message/rfc822",
}
"""Media type of each kind, regardless of what the sender declared."""
_SUFFIXES = {kind.value: kind for kind in AttachmentKind} | {"jpg": AttachmentKind.JPEG}
_INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of characters that are invisible in a name or change the order of their neighbours."""
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_HEADER = re.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*\r?\n)+(?:\r?\n|\Z)")
_MAIL_FIELD = re.compile(rb"^(?:from|date|received|message-id)[ \t]*:", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentFile:
    """File that can be attached to a request."""

    name: str = field(repr=False)
    kind: AttachmentKind
    content: bytes = field(repr=False)


def examine(name: str, content: bytes, *, max_bytes: int) -> AttachmentFile:
    """Determine a file's kind. Raises `AttachmentInvalid` or `UploadTooLarge`; neither error quotes the name."""
    if len(content) > max_bytes:
        fault = FieldError("file", f"expected at most {max_bytes} bytes")
        raise UploadTooLarge.attachment([fault], max_bytes=max_bytes)
    basename = unicodedata.normalize("NFC", re.split(r"[/\\]", name)[-1]).strip()
    if not 0 < len(basename) <= MAX_NAME_LENGTH or any(unicodedata.category(char) in _INVISIBLE for char in basename):
        raise _refused(f"expected a file whose name has 1 to {MAX_NAME_LENGTH} characters that are seen")
    kind = _SUFFIXES.get(basename.rpartition(".")[2].lower()) if "." in basename else None
    if kind is None:
        raise _refused("expected a name that ends in .pdf, .png, .jpeg, .jpg, .txt or .eml")
    if not content:
        raise _refused("is empty")
    if not _MATCHES[kind](content):
        raise _refused(f"is not what the end of its name says: expected {_EXPECTED[kind]}")
    return AttachmentFile(name=basename, kind=kind, content=content)


def _refused(fault: str) -> AttachmentInvalid:
    return AttachmentInvalid("The file cannot be attached. Nothing was stored.", [FieldError("file", fault)])


def _is_text(content: bytes) -> bool:
    if _CONTROL.search(content):
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_mail(content: bytes) -> bool:
    """Return True if the file starts with header fields, including one typical of e-mail. Any charset is accepted."""
    header = _HEADER.match(content)
    return header is not None and b"\0" not in content and _MAIL_FIELD.search(header[0]) is not None


_MATCHES: Mapping[AttachmentKind, Callable[[bytes], bool]] = {
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
