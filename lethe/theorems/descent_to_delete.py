"""Descent-to-Delete, the baseline: gradient descent without noise and one noisy publication.

Neighbours differ by adding or removing a record, not by replacing one, which favours it against the other bounds here:
replacement has twice the sensitivity.
"""

import math
from typing import Annotated

from lethe.proof.errors import DomainError, NotionError
from lethe.theorems.bound import Outputs, bound, choice, hypothesis, integer, require, steps_up
from lethe.theorems.conversions import root_gap
from lethe.theorems.symbols import (
    CONVEX,
    LANGEVIN,
    Convexity,
    Delta,
    Dimension,
    EpsilonTarget,
    Lipschitz,
    PositiveRadius,
    Rows,
    Smoothness,
)

_NEEL = 'Neel, Roth, Sharifi-Malvajerdi, "Descent-to-delete", ALT 2021, arXiv 2007.02923'
_ASSUMED = (*CONVEX[:1], *CONVEX[2:5], "The step size is 2/(L + m), and eps is of order log(1/delta) at most.")

Iterations = Annotated[int, integer("gradient steps per request", "[1, 1e15]", "steps")]
Request = Annotated[int, integer("index of the request", "[1, 1e15]")]
AddRemove = Annotated[
    bool, hypothesis("neighbours differ by adding or removing one record, not by replacing one", NotionError)
]
Purpose = Annotated[
    str,
    choice(
        "baseline: for comparison; certificate: refused, because the noiseless state is kept secretly",
        "baseline",
        "certificate",
    ),
]


@bound(
    "Descent-to-Delete with a secret state",
    reference=f"{_NEEL}, as quoted in {LANGEVIN}, Theorem N.1",
    statement="I steps per request and noise of scale 4 sqrt(2) M g^I/(m n (1 - g^I)(sqrt(log(1/delta) + eps) -"
    " sqrt(log(1/delta)))), g = (L - m)/(L + m), publish an (eps, delta)-unlearnt model, but the noiseless model is"
    " kept: a baseline, never a certificate.",
    assumptions=_ASSUMED,
    outputs={
        "sigma": "standard deviation of the noise of publication",
        "T": "steps of learning on a ball of radius R, if R is given",
        "stateless": "false: the noiseless model outlives the deletion",
    },
)
def n1_sigma(
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    n: Rows,
    I: Iterations,  # noqa: E741
    eps: EpsilonTarget,
    delta: Delta,
    R: PositiveRadius | None = None,
    add_remove: AddRemove = True,
    purpose: Purpose = "baseline",
) -> Outputs:
    require(purpose == "baseline", "stateless", "a mechanism that keeps nothing but its last published model")
    rate = _rate(m, L)
    shrunk = math.exp(-I * rate)
    gap = root_gap(-math.log(delta), eps)
    return {
        "sigma": 4 * math.sqrt(2) * Mlip * shrunk / (m * n * -math.expm1(-I * rate) * gap),
        "T": None if R is None else max(I, I + steps_up(math.log(R * m * n / Mlip) / rate)),
        "stateless": False,
    }


@bound(
    "Descent-to-Delete without a secret state",
    reference=f"{_NEEL}, as quoted in {LANGEVIN}, Theorem N.2",
    statement="Request i runs I + log(log(4 d i/delta))/log(1/g) steps, g = (L - m)/(L + m), from the published"
    " model, and publishes with noise of scale 8 M g^I/(m n (1 - g^I)(sqrt(2 log(2/delta) + 3 eps) - sqrt(2"
    " log(2/delta) + 2 eps))).",
    assumptions=_ASSUMED,
    outputs={
        "I": "least number of steps per request, before the term that grows with i",
        "iters": "steps of request i",
        "sigma": "standard deviation of the noise of publication",
    },
)
def n2_d2d(
    Mlip: Lipschitz,
    m: Convexity,
    L: Smoothness,
    n: Rows,
    d: Dimension,
    i: Request,
    eps: EpsilonTarget,
    delta: Delta,
    add_remove: AddRemove = True,
) -> Outputs:
    rate = _rate(m, L)
    loss = 2 * math.log(2 / delta)
    least = max(1, steps_up(math.log(math.sqrt(2 * d) / (-math.expm1(-rate) * root_gap(loss, eps))) / rate))
    late = math.log(math.log(4 * d * i / delta)) / rate  # positive: 4 d i/delta > 4 > e
    noise = 8 * Mlip * math.exp(-least * rate) / (m * n * -math.expm1(-least * rate) * root_gap(loss + 2 * eps, eps))
    return {"I": least, "iters": least + steps_up(late), "sigma": noise}


def _rate(m: float, L: float) -> float:
    """log(1/g) for g = (L - m)/(L + m)."""
    if m >= L:
        raise DomainError(f"Expected m={m} < L={L}")
    return math.log((L + m) / (L - m))
