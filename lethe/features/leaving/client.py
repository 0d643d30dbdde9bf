"""`client.leaving_reasons`: statistics of reasons for leaving, from answers that people randomise before sending.

The client never repeats `submit` automatically, because an answer could be counted twice, while a lost answer does not
bias the estimates. If you repeat the call, send the same answer and do not randomise again.
"""

from lethe.client.methods import H, Resource, call
from lethe.features.leaving import contract as leaving_reasons


class LeavingReasons(Resource[H]):
    """Methods of `client.leaving_reasons`."""

    submit = call(leaving_reasons.COUNT)
    estimate = call(leaving_reasons.GET)
