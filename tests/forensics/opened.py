"""Sealed content whose keys are still there counts as clear for an examiner who has the disks."""

from collections.abc import Iterable, Iterator

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from app import installations
from app.config import Settings
from app.vault.pieces import Vault
from tests.forensics.finder import Finder
from tests.forensics.stores import Said

_NONCE = 12
_MAX_BYTES = 2**15
"""Maximum number of bytes of sealed content that are searched."""


def everything(settings: Settings, contents: Iterable[Said]) -> Iterator[Said]:
    """Yield everything that can be decrypted: all sealed copies in these files whose key still exists, all weights, and
    all rows, including unreferenced rows."""
    with installations.opened(settings) as installation:
        yield from _opened(contents, _keys(installation.vault))
        for version_id in installation.weights.version_ids():
            yield f"weights of {version_id}", installation.weights.get(version_id)
        sealed = installation.rows._sealed
        for name in sealed.names():
            if sealed.is_key_there(name):
                yield f"rows of {name}", sealed.get(name)


def _keys(vault: Vault) -> dict[bytes, bytes]:
    """Return the vault's keys that have not been destroyed, keyed by name."""
    pages = [vault._unwrapped_page(path) for path in vault._folder.glob("*.page")]
    return {name: key for page in pages for name, key in page if key is not None}


def _opened(contents: Iterable[Said], keys: dict[bytes, bytes]) -> Iterator[Said]:
    """Find key names, in binary or hex, and yield the decryption of the nonce and sealed content that follow each of
    them. Tags are not checked, because copies may be truncated. Anything that is not sealed content decrypts to
    noise."""
    written = {name.hex(): name for name in keys} | {f"hex {name.hex()}": name.hex().encode() for name in keys}
    finder = Finder(written) if written else None
    for place, content in contents:
        for found, at in finder.places(content) if finder else ():
            name = bytes.fromhex(found.removeprefix("hex "))
            start = at + len(written[found])
            sealed = content[start : start + _MAX_BYTES]
            if found.startswith("hex "):
                sealed = _from_hex(sealed)
            yield f"opened in {place}", _decrypted(keys[name], sealed)


def _from_hex(text: bytes) -> bytes:
    digits = text[: next((at for at, one in enumerate(text) if one not in b"0123456789abcdef"), len(text))]
    return bytes.fromhex(digits[: len(digits) // 2 * 2].decode())


def _decrypted(key: bytes, sealed: bytes) -> bytes:
    """Decrypt AES-GCM without checking the tag, as CTR mode with a counter that begins at 2."""
    if len(sealed) <= _NONCE:
        return b""
    counter = sealed[:_NONCE] + (2).to_bytes(4, "big")
    return Cipher(algorithms.AES(key), modes.CTR(counter)).decryptor().update(sealed[_NONCE:])
