"""Fixed sentences in bundles, from `sentences.toml`: headlines in English and German, headings and limitations."""

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from lethe.features.systems.contract import Grade


@functools.cache
def texts(package: str) -> dict[str, Any]:
    """Return the texts in the `sentences.toml` of a feature's package."""
    return tomllib.loads((importlib.resources.files(package) / "sentences.toml").read_text("utf8"))


_TEXTS = texts("lethe.features.systems")
HEADINGS: list[dict[str, Any]] = _TEXTS["headings"]
"""Elements by which EDPB Opinion 28/2024 (section 3.2.2) assesses an AI model, with the fields relevant to each."""
LIMITS: list[str] = _TEXTS["limits"]
NO_JOINT: str = _TEXTS["no_joint"]
Remark = Mapping[str, Mapping[str, str]]
"""Sentences that a kind of evidence adds to the headline: `person` and `officer`, each in `en` and `de`."""


def headline(grade: Grade, names: Sequence[str], remarks: Sequence[Remark] = ()) -> dict[str, Any]:
    """Return a bundle's headline in English and German; `names` are the names of the systems with this grade."""
    person, officer, systems = _TEXTS["person"][grade], _TEXTS["officer"][grade], ", ".join(names)
    weakest = {"person": person, "officer": {tongue: f"{text} ({systems})." for tongue, text in officer.items()}}
    return {"grade": grade.value} | {
        reader: {
            tongue: " ".join([text, *(remark[reader][tongue] for remark in remarks)]) for tongue, text in of.items()
        }
        for reader, of in weakest.items()
    }
