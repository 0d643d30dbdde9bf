"""Evidence of a line in a bundle: the signed manifest of a retraining that read no row of the person."""

import datetime
from collections.abc import Mapping
from typing import Any

from lethe.features.attested import manifests
from lethe.features.systems.bundle import EvidenceKind, Line
from lethe.features.systems.contract import Grade
from lethe.proof.errors import PreconditionError

MANIFEST = "manifest"
"""Type of the evidence, whose other fields are `public_key` and `jws`."""


def _of_manifest(line: Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    evidence = line["evidence"]
    signed = manifests.read(evidence["jws"], evidence["public_key"])
    if signed is None:
        raise PreconditionError("manifest_signed", "Expected a manifest signed by the key of the trainer")
    if signed["trainer_id"] != line["system"]["id"]:
        raise PreconditionError("manifest_of_line", "Expected a manifest of the line's trainer")
    read_at, asked_at = (datetime.datetime.fromisoformat(at) for at in (signed["rows_read_at"], line["opened_at"]))
    if read_at < asked_at:
        raise PreconditionError("manifest_after_request", "Expected rows that were read after the request was due")
    return Grade.RETRAINED_ATTESTED


EVIDENCE = (
    EvidenceKind(
        type=MANIFEST,
        grade=_of_manifest,
        method="The trainer signed which rows it read, none of the person's: the new artefact is a function of rows "
        "without the person, equal in law to a training that never had them, for requests chosen without looking at "
        "published models; who stays has no bound (release unbounded).",
        limits=(
            "The training is the word of the key that signed it; Lethe compared the identifiers, and saw neither "
            "the rows nor the training.",
            "No epsilon is stated: the artefact may reveal anything about people who stay.",
        ),
    ),
)
