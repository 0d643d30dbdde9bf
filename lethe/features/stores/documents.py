"""Folders of documents, such as the source files of a vector store.

A person's documents are the files that match a pattern containing the identifier. These files are overwritten and
removed, and the rest of the folder is searched for copies.
"""

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from lethe.features.stores import needles, store

PLACE = "{identifier}"
_PART_BYTES = 2048


class Documents:
    """Folder of documents. `pattern` is a glob that contains `{identifier}`, such as `customers/{identifier}/**`."""

    kind = "documents"
    method = "The person's files were overwritten with zeros and removed."

    def __init__(self, path: Path, *, pattern: str) -> None:
        if PLACE not in pattern or pattern.startswith("/") or ".." in pattern:
            raise store.StoreError("identifier_missing", f"Expected a pattern in the folder with {PLACE} in it")
        self._path, self._pattern = path, pattern

    def version(self) -> str:
        return "1"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        if not self._path.is_dir():
            raise store.StoreError("store_missing", "Expected a folder at the configured path")
        with store.locked(self._path.with_name(f".{self._path.name}.lethe-lock")):
            store.require_unused(self._path)
            yield

    def _paths(self, identifier: str) -> list[Path]:
        if "/" in identifier or identifier in ("", ".", ".."):
            raise store.StoreError("identifier_unusable", "Expected an identifier that can be the name of a file")
        pattern = self._pattern_of(identifier)
        # In Python 3.11 a pattern that ends with ** finds folders alone.
        paths = self._path.glob(f"{pattern}/*" if pattern.endswith("**") else pattern)
        return sorted(path for path in paths if path.is_file() and not path.is_symlink())

    def _pattern_of(self, identifier: str) -> str:
        """Return the glob for a person's files. Wildcard characters in the identifier match literally."""
        return self._pattern.replace(PLACE, "".join(f"[{sign}]" if sign in "*?[" else sign for sign in identifier))

    def _folders(self, identifier: str) -> set[Path]:
        """Return the folders named after a person, and all folders in them, including empty ones."""
        parts = self._pattern.split("/")
        named = next(place for place, part in enumerate(parts) if PLACE in part)
        folders = self._path.glob("/".join(self._pattern_of(identifier).split("/")[: named + 1]))
        return {folder for top in folders if not top.is_symlink() for folder in (top, *top.rglob("*"))}

    def find(self, identifier: str) -> list[needles.StoreRecord]:
        return [needles.StoreRecord(id=None, texts=tuple(_parts(path))) for path in self._paths(identifier)]

    def plant(self, identifier: str) -> None:
        path = self._path / self._pattern.replace(PLACE, identifier).replace("**", "control").replace("*", "control")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{store.CONTROL}{secrets.token_hex(24)}")

    def erase(self, identifiers: Sequence[str]) -> None:
        for identifier in identifiers:
            paths = self._paths(identifier)
            folders = self._folders(identifier)
            for path in paths:
                store.overwrite(path)
                path.unlink()
                folders |= {self._path / parent for parent in path.relative_to(self._path).parents if parent.name}
            for folder in sorted(folders, reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def files(self) -> list[store.StoreFile]:
        paths = sorted(path for path in self._path.rglob("*") if path.is_file() and not path.is_symlink())
        return [self._file(path) for path in paths]

    def _file(self, path: Path) -> store.StoreFile:
        name = path.relative_to(self._path).as_posix()
        return store.StoreFile(path=path, name=name, is_public=False, decoded=lambda: [("name", name.encode())])

    def live(self) -> Iterator[needles.StoreRecord]:
        """Yield nothing: a copy of a person's document in another file must be found, not treated as shared."""
        yield from ()


def _parts(path: Path) -> Iterator[bytes]:
    """Yield a file's content in parts, so that a copy of any part is found."""
    with path.open("rb") as file:
        while part := file.read(_PART_BYTES):
            yield part
