"""Batches read in turn: step t reads batch t mod B, so that a row moves one step in B.

The string of `docs/mathematics/shift.md` is straight from a row's first visit to its last but one, and bent before the
last: what that step lets in is hidden by its own noise and that of the steps after it. However many steps there were
before the step size falls, their visits are one span.
"""

from itertools import accumulate
from typing import Annotated

from lethe.theorems import work
from lethe.theorems.bound import Outputs, bound, integer, real, require
from lethe.theorems.symbols import (
    CONVEX,
    HIDDEN,
    SHIFTED,
    ContractionAtMostOne,
    Noise,
    Steps,
    StepsAtLeastOne,
    StepSize,
)
from lethe.theorems.taut_string import Span, Stretch, mu_of, spans_of

Batches = Annotated[int, integer("batches, of which each step reads the next", "[1, 1e15]", "batches")]
Gap = Annotated[
    float,
    real("largest difference of the gradients of the row's batch: 2M/b if one of its b rows is replaced", "(0, inf)"),
]
Cooldown = Annotated[
    int, integer("the last q of the T steps, over which the step size falls evenly to eta/q", "[1, 10000]", "steps")
]

_NO_STEP = Span(0.0, 0.0, 1.0)


@bound(
    "Cyclic batches",
    reference=f"{SHIFTED}: noisy cyclic gradient descent, the case T = B E, K = 0, q = 1",
    statement="T steps read B batches in turn, the row's among them, and K more leave it out. Whichever batch the row"
    " is in, the last iterates are mu-GDP: mu^2 adds (rise)^2/run over the straight pieces of the string. If B > 1,"
    " q = 1, K = 0 and T = B E, mu = (eta gap/nu) sqrt(1 + c^(2B-2) (1 - c^2)/(1 - c^B)^2 (1 - r)/(1 + r)) with"
    " r = c^(T-B) and nu^2 = 2 eta sigma^2.",
    assumptions=(
        *CONVEX[:1],
        "The step size is at most 2/(m + L), so that a step a times as long contracts by 1 - a (1 - c).",
        *CONVEX[2:4],
        "Which rows are in which batch, and the order of the batches, do not depend on the data; the row keeps its"
        " place when it is replaced or becomes null.",
        HIDDEN,
    ),
    outputs={
        "mu": "mu-GDP in both directions of a row in the batch where it is largest",
        "since_visit": "how many of the T steps came after that batch was last read",
        "mu_least": "mu of a row in the batch where it is least; 0 if not all batches are read",
        "mu_full_batch": "mu of every row if each step had read all batches, which move it by a Bth of the gap",
    },
)
def cyclic_batches(
    B: Batches,
    T: StepsAtLeastOne,
    gap: Gap,
    c: ContractionAtMostOne,
    eta: StepSize,
    sigma: Noise,
    K: Steps = 0,
    q: Cooldown = 1,
) -> Outputs:
    require(q <= T, "cooldown_within_run", f"q={q} <= T={T}")
    work.spend(_EACH * q)
    push, variance = eta * gap, 2 * eta * sigma**2
    visits = [Span(push * a, variance * a, 1 - (1 - c) * a) for a in ((q - i) / q for i in range(q))]
    quiet = [Span(0.0, visit.variance, visit.decay) for visit in visits]
    rest = [*spans_of(Stretch(steps=K, contraction=c, variance=variance))] if K else []
    before = list(accumulate(quiet, Span.then, initial=_NO_STEP))
    after = list(accumulate([*quiet, *rest][::-1], lambda later, step: step.then(later), initial=_NO_STEP))[::-1]
    between = _windows(quiet, B - 1)

    def mu_of_place(age: int) -> float:
        """The mu of the batch that was last read `age` steps before the last of the T."""
        first, last = (T - age - 1) % B, q - 1 - age  # counted from the first step, and from where the step size falls
        path: list[Span[float]] = []
        if first < T - q:
            alike = Stretch(steps=T - q - first, contraction=c, variance=variance, push=push, every=B)
            path += spans_of(alike)
        if last < 0:
            path.append(after[0])
        else:
            path.append(before[last % B])
            path += (visits[i].then(between[i + 1]) for i in range(last % B, last, B))
            path.append(visits[last].then(after[last + 1]))
        return mu_of(span for span in path if span.variance)

    # what was read before the step size fell has left the more, the later that was: two ages stand for all of them
    read = min(B, T)
    mus = {age: mu_of_place(age) for age in {*range(min(q, read)), min(q, read - 1), read - 1}}
    since_visit = max(sorted(mus), key=lambda age: mus[age])
    alike = [*spans_of(Stretch(steps=T - q, contraction=c, variance=variance, push=push / B))] if q < T else []
    evenly = [Span(visit.influence / B, visit.variance, visit.decay) for visit in visits]
    return {
        "mu": mus[since_visit],
        "since_visit": since_visit,
        "mu_least": min(mus.values()) if B <= T else 0.0,
        "mu_full_batch": mu_of([*alike, *evenly, *rest]),
    }


_EACH = 50
"""Units of work that a step of the cool-down costs."""


def _windows(steps: list[Span[float]], length: int) -> list[Span[float]]:
    """Every `length` of the steps in a row, by where they begin; none if there are fewer."""
    if length > len(steps):
        return []
    windows, done, doubled, size = [_NO_STEP] * (len(steps) + 1), 0, steps, 1
    while done < length:
        if (length - done) & size:
            windows = [window.then(more) for window, more in zip(windows, doubled[done:], strict=False)]
            done += size
        doubled = [one.then(other) for one, other in zip(doubled, doubled[size:], strict=False)]
        size *= 2
    return windows
