"""What may be served now, for whoever serves the weights (`client.models.serving`)."""

import datetime
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Whether a version may be served, and until when without asking again. `reason`: not_live, forgetting_overdue,
    superseded or weights_destroyed; `retry_after_seconds`: when to ask again about what may not be served yet."""

    model_id: str
    version: int | None
    weights_sha256: str | None
    may_serve: bool
    reason: str | None
    certified: bool
    valid_until: datetime.datetime | None
    retry_after_seconds: int | None
