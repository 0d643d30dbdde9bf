"""Bundle evidence that a trainer's artefacts were retrained without the person's data (extension socket `EVIDENCE`)."""

import datetime
import re
from collections.abc import Mapping
from typing import Any

from lethe.features.systems.bundle import EvidenceKind, Line, require
from lethe.features.systems.contract import Grade
from lethe.proof import wellformed

RETRAINING, RETIRED = "retraining", "trainer_retired"
_DIGEST = re.compile("[0-9a-f]{64}")
_FIELDS = {
    "type",
    "training_id",
    "trainer_sha256",
    "lock_sha256",
    "erased_at",
    "started_at",
    "published_at",
    "repeated",
    "artefacts",
    "findings",
}


def _of_retraining(line: Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> Grade:
    evidence = line["evidence"]
    require("retraining_complete", evidence.keys() == _FIELDS, f"the fields {sorted(_FIELDS)}")
    times = {name: evidence[name] for name in ("erased_at", "started_at", "published_at")}
    wellformed.check("the retraining", times, dict.fromkeys(times, wellformed.moment))
    erased, started, published = (datetime.datetime.fromisoformat(moment) for moment in times.values())
    require("retrained_after_erasure", erased <= started <= published, "a training that began after the erasure")
    digests = [evidence["trainer_sha256"], evidence["lock_sha256"], *evidence["artefacts"].values()]
    is_named = all(_DIGEST.fullmatch(digest) for digest in digests) and bool(evidence["artefacts"])
    require("artefacts_by_digest", is_named, "the SHA-256 of the trainer, its lock file and each artefact")
    return Grade.RETRAINED_HERMETIC


_PACKAGE = "lethe.features.trainers"
EVIDENCE = (
    EvidenceKind.worded(_PACKAGE, RETRAINING, _of_retraining),
    EvidenceKind.worded(_PACKAGE, RETIRED, lambda line, request_id, certificates: Grade.SEARCHED),
)
