"""Sealed content can be opened by an attacker who has the disks, as long as its key is on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config import Settings
from app.installations import Installation
from tests.forensics import forms, opened, person, search
from tests.forensics.finder import Finder
from tests.stored import root_of, rows_of

NOTE = person.new().note
FINDER = Finder(forms.of_text("note", NOTE))
COPIES = {
    "whole": lambda sealed: sealed,
    "cut off": lambda sealed: sealed[:-30],
    "among others": lambda sealed: bytes(999) + sealed + b"so it goes",
    "in hex": lambda sealed: f"parameters: $1 = '\\x{sealed.hex()}', $2 = 3".encode(),
}


@pytest.mark.parametrize("copy", COPIES)
def test_sealed_text_is_found_until_its_key_is_destroyed(
    settings: Settings, installation: Installation, tmp_path: Path, copy: str
) -> None:
    """A copy of a sealed text, however it was made, can be opened with its key, but not after the key is destroyed."""
    sealed = installation.vault.seal(json.dumps({"note": NOTE, "more": "so it goes, " * 9}).encode())
    (tmp_path / "copy").write_bytes(COPIES[copy](sealed))
    assert search.folders([tmp_path], FINDER) == {}
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), FINDER)
    installation.vault.destroy([installation.vault.key_of(sealed)])
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), FINDER) == {}


def test_weights_are_found_until_they_are_destroyed(
    settings: Settings, installation: Installation, tmp_path: Path
) -> None:
    """Sealed weights can be opened with their key, but not after the key is destroyed."""
    installation.weights.put("ver_1", NOTE.encode())
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), FINDER)
    installation.weights.destroy("ver_1")
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), FINDER) == {}


def test_rows_are_found_until_their_keys_are_destroyed(
    settings: Settings, installation: Installation, new_dataset: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Sealed rows, even unreferenced ones, can be opened with the keys of their blocks, but not after the keys
    are destroyed."""
    dataset = new_dataset()["id"]
    root = root_of(installation, dataset)
    finder = Finder({"a row": rows_of(installation, dataset).features[3].tobytes()})
    after = installation.rows.edit(dataset, root, null=[3])
    assert search.folders([settings.data_dir], finder) == {}
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), finder)
    installation.rows.destroy_replaced(dataset, before=root, after=after)
    assert search.texts(opened.everything(settings, search.everything([tmp_path])), finder) == {}
