"""Bundle evidence that a trainer's artefacts were retrained without the person's data (extension socket `EVIDENCE`)."""

import datetime
import re
from collections.abc import Mapping
from typing import Any

from lethe.features.systems import bundle, contract
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


def _of_retraining(line: bundle.Line, _request_id: str, _certificates: Mapping[str, dict[str, Any]]) -> contract.Grade:
    evidence = line["evidence"]
    bundle.require("retraining_complete", evidence.keys() == _FIELDS, f"the fields {sorted(_FIELDS)}")
    times = {name: evidence[name] for name in ("erased_at", "started_at", "published_at")}
    wellformed.check("the retraining", times, dict.fromkeys(times, wellformed.moment))
    erased, started, published = (datetime.datetime.fromisoformat(moment) for moment in times.values())
    bundle.require("retrained_after_erasure", erased <= started <= published, "a training that began after the erasure")
    digests = [evidence["trainer_sha256"], evidence["lock_sha256"], *evidence["artefacts"].values()]
    is_named = all(_DIGEST.fullmatch(digest) for digest in digests) and bool(evidence["artefacts"])
    bundle.require("artefacts_by_digest", is_named, "the SHA-256 of the trainer, its lock file and each artefact")
    return contract.Grade.RETRAINED_HERMETIC


_PACKAGE = "lethe.features.trainers"
EVIDENCE = (
    bundle.EvidenceKind.worded(_PACKAGE, RETRAINING, _of_retraining),
    bundle.EvidenceKind.worded(_PACKAGE, RETIRED, lambda line, request_id, certificates: contract.Grade.SEARCHED),
)
