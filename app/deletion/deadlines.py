"""When a request is due: a calendar month under the GDPR, 45 days under the CCPA, 30 days otherwise."""

import datetime
from enum import StrEnum

from dateutil.relativedelta import relativedelta


class Regulation(StrEnum):
    GDPR = "gdpr"
    CCPA = "ccpa"
    OTHER = "other"


_TIME_LIMIT = {
    Regulation.GDPR: relativedelta(
        months=1
    ),  # Art. 12(3); Regulation 1182/71: the same day of the next month, or its last
    Regulation.CCPA: relativedelta(days=45),  # Cal. Civ. Code 1798.130(a)(2)
    Regulation.OTHER: relativedelta(days=30),
}


def due_at(regulation: Regulation, submitted_at: datetime.datetime) -> datetime.datetime:
    """The end of the time limit that began at `submitted_at` (aware)."""
    return submitted_at + _TIME_LIMIT[regulation]
