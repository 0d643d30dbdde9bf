"""Files as people attach them, one of each kind."""

from lethe.features.desk.contract import AttachmentKind

NAME = "Letter of Jane Roe é 😀.pdf"
MAIL = (
    b"Received: from mail.example\r\n by lethe.example; Mon, 1 Jun 2026 10:00:00 +0000\r\nFrom: Jane Roe <j@x.example>"
    b"\r\nSubject: forget me\r\n\r\nPlease.\xe9\r\n"
)
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\nJane Roe asks\n%%EOF\n"
FILES: dict[AttachmentKind, bytes] = {
    AttachmentKind.PDF: PDF,
    AttachmentKind.PNG: b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    AttachmentKind.JPEG: b"\xff\xd8\xff\xe0\0\x10JFIF\0",
    AttachmentKind.TXT: "Jane Roe, é 😀\nasks.\t".encode(),
    AttachmentKind.EML: MAIL,
}
