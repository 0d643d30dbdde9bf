"""Data deletion against people who watch and choose: Chourasia and Shah, Sections 3 and 4.

Theorems 4.1 and 4.3 are printed for a certificate that bounds each version on its own. With requesters who read
published versions that is not enough: later databases contain rows that were written by requests which had seen the
record. A counterexample with epsilon = 0 and p = 1: A publishes the bit D; step 1 publishes a constant; step 2 a fresh
pad r; step 3 D_3 + r; the requester read the first version and copied the bit into another row, so that two releases
together reveal it while each alone does not. The statements hold for the joint law of the versions and the history of
requests, which is what noisy gradient descent certifies.
"""

import math
from typing import Annotated

from scipy.special import digamma

from lethe.proof.errors import NotionError, PreconditionError
from lethe.theorems import work
from lethe.theorems.bound import Outputs, bound, choice, hypothesis, integer
from lethe.theorems.symbols import FORGET, Advantage, Count, Epsilon, EpsilonTarget, OrderOrInfinity

Request = Annotated[int, integer("index of the deletion request", "[4, 1e9]")]
FirstRelease = Annotated[int, integer("index of the first release that is counted", "[1, 1e9]")]
Releases = Annotated[int, integer("number of releases", "[0, 1e9]")]
VersionsSeen = Annotated[
    int,
    integer("versions with the record in it that anybody who can influence requests may have seen", "[0, 1e15]"),
]
ReleasesAfter = Annotated[int, integer("versions published after the deletion", "[1, 1e15]")]
Scope = Annotated[
    str,
    choice(
        "joint: eps bounds the versions together with the history of requests; marginal: each version on its own, as"
        " the theorem is printed, which suffices only if p = 0 or releases = 1",
        "joint",
        "marginal",
    ),
]
Counted = Annotated[
    str,
    choice(
        "what p counts: all_versions; observed, where eps_dp is a chain bound (given the version observed before); or"
        " observed_only, as the theorem is printed, which loses what unobserved versions carry on",
        "all_versions",
        "chain_bound",
        "observed_only",
    ),
]
LowerLimit = Annotated[bool, hypothesis("adv is a lower confidence limit, not a point estimate", PreconditionError)]
Conditional = Annotated[
    bool,
    hypothesis(
        "eps_dd and eps_dp hold conditionally on every fixed published model; the printed theorem asks for less and is"
        " then false (a version may carry a pad that an adaptive request keys to the record)",
        NotionError,
    ),
]

_ADVANTAGE = {"adv": "largest advantage of an adversary who asks whether the record was there, in [0, 1]"}


@bound(
    "Exact adaptive unlearning may reveal the record",
    reference=f"{FORGET}, Theorem 3.1",
    statement="Some (0, 0)-adaptive-unlearning pair lets a 1-adaptive requester infer the record deleted at step i from"
    " one release with probability at least 1 - 2^(3 - i).",
    assumptions=("A demonstration: the median of distinct records, n odd.",),
    outputs={"prob": "probability of inference"},
)
def t31_success(i: Request) -> Outputs:
    return {"prob": -math.expm1((3 - i) * math.log(2))}


@bound(
    "A secret counter leaks over releases",
    reference=f"{FORGET}, Theorem 3.2, proof",
    statement="Some (eps, 0)-non-adaptive-unlearning pair that keeps state loses eps (1/i + ... + 1/(i + N - 1)) about"
    " the deleted record over N releases, without limit.",
    assumptions=("A demonstration of why a deletion run may keep no state but the last model.",),
    outputs={"loss": "privacy loss, nats"},
)
def t32_count_loss(eps: EpsilonTarget, i: FirstRelease, N: Releases) -> Outputs:
    if N <= 10_000:
        work.spend(N)
        return {"loss": eps * math.fsum(1 / j for j in range(i, i + N))}
    return {"loss": eps * float(digamma(i + N) - digamma(i))}


@bound(
    "Soundness of data deletion",
    reference=f"{FORGET}, Theorem 4.1, with the scope corrected",
    statement="(q, eps)-data-deletion limits the advantage about the deleted record to"
    " min(sqrt(2 eps), q/(q - 1) e^(eps (q - 1)/q) (2(q - 1))^(1/q) - 1); printed for all later versions, it needs the"
    " joint bound as soon as p >= 1 and more than one version follows.",
    outputs=_ADVANTAGE,
)
def t41_adv(
    q: OrderOrInfinity, eps: Epsilon, scope: Scope = "joint", p: VersionsSeen = 0, releases: ReleasesAfter = 1
) -> Outputs:
    _require_joint(scope, p, releases)
    return {"adv": _advantage(q, eps)}


@bound(
    "Soundness of data deletion, with the chi-square branch",
    reference=f"{FORGET}, Theorem 4.1, with the scope corrected and a third branch",
    statement="As t41_adv, and for q >= 2 also at most sqrt(e^eps - 1): each law is within total variation"
    " sqrt(chi^2)/2 of the reference, and chi^2 = e^(R_2) - 1.",
    outputs=_ADVANTAGE,
)
def t41_adv_plus(
    q: OrderOrInfinity, eps: Epsilon, scope: Scope = "joint", p: VersionsSeen = 0, releases: ReleasesAfter = 1
) -> Outputs:
    _require_joint(scope, p, releases)
    chi_square = math.sqrt(math.expm1(min(eps, 1.0))) if q >= 2 else math.inf
    return {"adv": min(_advantage(q, eps), chi_square)}


@bound(
    "From non-adaptive to adaptive requesters",
    reference=f"{FORGET}, Theorem 4.3, with the hypotheses corrected",
    statement="If from every published model the deletion bound is (q, eps_dd) and each version published while the"
    " record was there costs (q, eps_dp), requesters who see p of them are covered by (q, eps_dd + p eps_dp); as"
    " printed, for marginal bounds and observed versions only, this is false.",
    assumptions=(
        "eps_dp bounds a version given the one published before; noisy gradient descent from a fixed start provides"
        " it.",
    ),
    outputs={"eps": "Renyi divergence at the common order, nats; joint in the versions read and the requests"},
)
def t43_adaptive(
    eps_dd: Epsilon,
    eps_dp: Epsilon,
    p: Count,
    q_dd: OrderOrInfinity | None = None,
    q_dp: OrderOrInfinity | None = None,
    counted: Counted = "all_versions",
    conditional: Conditional = True,
) -> Outputs:
    if q_dd is not None and q_dp is not None and q_dd != q_dp:
        raise NotionError(f"same_order: Expected q_dd={q_dd} == q_dp={q_dp}: Renyi values add at one order only")
    if counted == "observed_only" and p > 0:
        raise NotionError("counted: Expected p to count all versions, or eps_dp to be a chain bound")
    return {"eps": eps_dd + p * eps_dp}


@bound(
    "What an observed advantage refutes",
    reference=f"{FORGET}, Theorem 4.5",
    statement="If tests against learning and against deletion have advantage above adv, no (q, eps)-data-deletion under"
    " 1-adaptive requesters is possible for eps below"
    " max(adv^4/2, log(q - 1) + q/(q - 1) log((1 + adv^2)/(q 2^(1/q)))).",
    assumptions=("The test of the deletion has that advantage whatever the input model.",),
    outputs={"eps_min": "certificates below this epsilon are refuted, nats"},
)
def t45_threshold(q: OrderOrInfinity, adv: Advantage, lower_limit: LowerLimit = True) -> Outputs:
    gain = math.log1p(adv**2)
    if not math.isinf(q):
        gain = math.log(q - 1) + q / (q - 1) * (gain - math.log(q) - math.log(2) / q)
    return {"eps_min": max(adv**4 / 2, gain)}


def _advantage(q: float, eps: float) -> float:
    """The two branches of Theorem 4.1, or 1 if both are larger."""
    log_one_plus = eps
    if not math.isinf(q):
        log_one_plus = math.log(q / (q - 1)) + eps * (q - 1) / q + math.log(2 * (q - 1)) / q
    return min(math.sqrt(2 * eps), math.expm1(min(log_one_plus, 1.0)), 1.0)


def _require_joint(scope: str, p: int, releases: int) -> None:
    if scope == "marginal" and p > 0 and releases > 1:
        raise NotionError(f"scope: Expected a joint bound, or p={p} == 0, or releases={releases} == 1")
