"""`client.leaving_reasons`: why people leave, by answers that they randomised before they sent them.

`submit` is not made again by itself, for then it might be counted twice: an answer that is lost takes nothing from
what is right about the others. A client that repeats it sends the same answer, and never randomises anew.
"""

from lethe.contract import leaving_reasons
from lethe.methods import H, Resource, call


class LeavingReasons(Resource[H]):
    submit = call(leaving_reasons.COUNT)
    estimate = call(leaving_reasons.GET)
