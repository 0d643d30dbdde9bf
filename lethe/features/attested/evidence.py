"""Evidence for a line in a bundle: the signed manifest of a retraining that read none of the person's rows."""

import datetime
from collections.abc import Mapping
from typing import Any

from lethe.features.attested import manifests
from lethe.features.systems import bundle, contract
from lethe.proof.errors import PreconditionError

MANIFEST = "manifest"
"""Type of this evidence, whose other fields are `public_key` and `jws`."""


def _of_manifest(line: bundle.Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> contract.Grade:
    evidence = line["evidence"]
    signed = manifests.read(evidence["jws"], evidence["public_key"])
    if signed is None:
        raise PreconditionError("manifest_signed", "Expected a manifest signed by the key of the trainer")
    bundle.require("manifest_of_line", signed["trainer_id"] == line["system"]["id"], "a manifest of the line's trainer")
    read_at, asked_at = (datetime.datetime.fromisoformat(at) for at in (signed["rows_read_at"], line["opened_at"]))
    bundle.require("manifest_after_request", read_at >= asked_at, "rows that were read after the request was due")
    return contract.Grade.RETRAINED_ATTESTED


EVIDENCE = (bundle.EvidenceKind.worded("lethe.features.attested", MANIFEST, _of_manifest),)
