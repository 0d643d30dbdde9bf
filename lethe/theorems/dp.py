"""Differential privacy: groups, composition with unlearning, measuring epsilon, and the mean as the simplest task."""

import math
from typing import Annotated

from scipy.special import betaincinv

from lethe.proof.errors import DomainError, InfeasibleError, NotionError, PreconditionError
from lethe.theorems.bound import Outputs, bound, hypothesis, integer, real
from lethe.theorems.symbols import Count, DeltaOrOne, DeltaOrZero, Epsilon, EpsilonTarget, Group, Rate, Rows, Trials

_GROUPS = 'Vadhan, "The complexity of differential privacy", 2017, Lemma 2.2, with the sum of its proof kept'
_COMPOSED = 'Dwork, Roth, "The algorithmic foundations of differential privacy", 2014, Section 3.5'
_AUDIT = 'Jagielski, Ullman, Oprea, "Auditing differentially private machine learning", NeurIPS 2020'
_MEAN = 'Duchi, Jordan, Wainwright, "Local privacy and statistical minimax rates", FOCS 2013'

UniformStart = Annotated[
    bool,
    hypothesis("the unlearning guarantee holds from every start model, not only from a converged one", NotionError),
]
FixedRule = Annotated[
    bool, hypothesis("the decision rules were fixed before the test data were seen", PreconditionError)
]
IndependentRuns = Annotated[
    bool, hypothesis("every trial is a fresh run of (un)learning, independent of the others", PreconditionError)
]
Confidence = Annotated[float, real("confidence of the limit", "(0, 1)")]
Miss = Annotated[float, real("probability with which the limit may fail", "(0, 1)")]
Rules = Annotated[int, integer("decision rules tried; gamma is shared among them", "[1, 1e15]")]
SecondMoment = Annotated[float, real("bound of the second moment E x^2", "(0, inf)")]
Clip = Annotated[float, real("values are clipped to [-tau, tau]", "(0, inf)")]
ValueVariance = Annotated[float, real("variance of one value; 1/4 is the largest on [0, 1]", "[0, inf)")]
Width = Annotated[float, real("width of the interval the values lie in", "(0, inf)")]


@bound(
    "Group privacy",
    reference=_GROUPS,
    statement="(eps, delta)-DP implies (k eps, delta (e^(k eps) - 1)/(e^eps - 1))-DP for groups of k; this is attained."
    " The k delta that is often quoted is its limit at eps = 0, and too small for eps > 0.",
    outputs={
        "eps": "epsilon of the group, nats",
        "delta": "delta of the group",
        "k_delta": "k delta: the common misquotation, not a guarantee when eps > 0",
    },
)
def group_privacy(eps: Epsilon, delta: DeltaOrOne, k: Group) -> Outputs:
    log_delta = math.log(delta) + _log_geometric(eps, k) if delta > 0 else -math.inf
    if log_delta >= 0:
        raise InfeasibleError(f"Expected delta of a group of {k} < 1: the guarantee of one record is too weak")
    return {"eps": k * eps, "delta": math.exp(log_delta), "k_delta": k * delta}


@bound(
    "Per-record target for a group target",
    reference=_GROUPS,
    statement="(eps/k, delta (e^(eps/k) - 1)/(e^eps - 1))-DP per record gives (eps, delta) for groups of k: the inverse"
    " of group_privacy.",
    outputs={"eps": "epsilon per record, nats", "delta": "delta per record"},
)
def group_privacy_inverse(eps: Epsilon, delta: DeltaOrOne, k: Group) -> Outputs:
    return {"eps": eps / k, "delta": delta * math.exp(-_log_geometric(eps / k, k))}


@bound(
    "Per-record target for a group target, as often printed",
    reference=_GROUPS,
    statement="(eps/k, delta (e^eps - 1)/(e^(k eps) - 1)): group_privacy solved for delta with the group's eps where"
    " the record's belongs; valid, and stricter than group_privacy_inverse by a factor that grows like e^((k - 1)"
    " eps).",
    outputs={"eps": "epsilon per record, nats", "delta": "delta per record, needlessly small"},
)
def group_privacy_inverse_as_printed(eps: Epsilon, delta: DeltaOrOne, k: Group) -> Outputs:
    return {"eps": eps / k, "delta": delta * math.exp(-_log_geometric(eps, k))}


@bound(
    "Private pre-training, then unlearning of the fine-tuning",
    reference=_COMPOSED,
    statement="If pre-training is (eps, delta)-DP for the forget set as a group and U is (eps_u, delta_u)-unlearning"
    " from every start model, U is (eps + eps_u, delta_sum)-unlearning of the whole; delta_min_form is the usual,"
    " weaker, form.",
    assumptions=("Pre-training is (eps, delta)-DP for groups as large as the forget set.",),
    outputs={
        "eps": "epsilon of the pipeline, nats",
        "delta_min_form": "min(e^eps delta_u + delta, e^eps_u delta + delta_u), at most 1",
        "delta_sum": "delta + delta_u, at most 1: composition of the pair (pre-trained, final); use this one",
    },
)
def pretrain_then_unlearn(
    eps: Epsilon,
    delta: DeltaOrOne,
    eps_u: Epsilon,
    delta_u: DeltaOrOne,
    uniform_over_starts: UniformStart = True,
    group_size: Group | None = None,
    forget_size: Group | None = None,
) -> Outputs:
    if group_size is not None and forget_size is not None and group_size < forget_size:
        raise NotionError(f"group_size: Expected group_size={group_size} >= forget_size={forget_size}")
    crossed = min(_grown(eps, delta_u) + delta, _grown(eps_u, delta) + delta_u)
    return {"eps": eps + eps_u, "delta_min_form": min(crossed, 1.0), "delta_sum": min(delta + delta_u, 1.0)}


@bound(
    "epsilon-hat, the point estimate",
    reference=_AUDIT,
    statement="eps = max(log((1 - delta - FPR)/FNR), log((1 - delta - FNR)/FPR)); the rates are estimates, so this is"
    " no evidence: see eps_lower_cp.",
    outputs={"eps": "estimate, nats, in [-inf, inf]", "estimate": "true: not a confidence limit"},
)
def eps_hat(fpr: Rate, fnr: Rate, delta: DeltaOrZero) -> Outputs:
    return {"eps": _distinguished(fpr, fnr, delta), "estimate": True}


@bound(
    "Upper confidence limit of a rate",
    reference="Clopper, Pearson, Biometrika 26 (1934)",
    statement="With probability conf the rate of x successes in n trials is at most the conf-quantile of"
    " Beta(x + 1, n - x); 1 if x = n.",
    assumptions=("The trials are independent and equally distributed.",),
    outputs={"upper": "upper limit of the rate"},
)
def clopper_pearson_upper(x: Count, n: Trials, conf: Confidence) -> Outputs:
    return {"upper": _upper_limit("x", x, "n", n, conf)}


@bound(
    "A lower confidence limit of epsilon",
    reference=_AUDIT,
    statement="eps_hat at the upper Clopper-Pearson limits of both rates, each at level 1 - gamma/(2 rules), is at most"
    " the true epsilon with probability 1 - gamma.",
    assumptions=("A value above a certified epsilon refutes the certificate; a value below it proves nothing.",),
    outputs={
        "eps": "lower limit of epsilon, nats, >= 0",
        "fpr_upper": "upper limit of the false positive rate",
        "fnr_upper": "upper limit of the false negative rate",
    },
)
def eps_lower_cp(
    fp: Count,
    n0: Trials,
    fn: Count,
    n1: Trials,
    delta: DeltaOrZero,
    gamma: Miss,
    rules: Rules = 1,
    rule_fixed_in_advance: FixedRule = True,
    independent_runs: IndependentRuns = True,
) -> Outputs:
    level = 1 - gamma / rules / 2
    fpr, fnr = _upper_limit("fp", fp, "n0", n0, level), _upper_limit("fn", fn, "n1", n1, level)
    return {"eps": max(_distinguished(fpr, fnr, delta), 0.0), "fpr_upper": fpr, "fnr_upper": fnr}


@bound(
    "Mean in the central model",
    reference=_MEAN,
    statement="The Laplace mechanism estimates a mean with error var/n + 2 width^2/(n eps)^2; privacy costs no rate"
    " when eps is at least of order n^(-1/2).",
    assumptions=("All values lie in an interval of the given width.",),
    outputs={"mse": "mean squared error"},
)
def central_mean_mse(n: Rows, eps: EpsilonTarget, var: ValueVariance = 0.25, width: Width = 1.0) -> Outputs:
    return {"mse": var / n + 2 * (width / (n * eps)) ** 2}


@bound(
    "Mean in the local model",
    reference=_MEAN,
    statement="Laplace noise on every value estimates a mean with error var/n + 2 width^2/(n eps^2).",
    assumptions=("All values lie in an interval of the given width.",),
    outputs={"mse": "mean squared error"},
)
def local_mean_mse(n: Rows, eps: EpsilonTarget, var: ValueVariance = 0.25, width: Width = 1.0) -> Outputs:
    return {"mse": var / n + 2 * (width / eps) ** 2 / n}


@bound(
    "Best clip for an unbounded mean in the local model",
    reference=_MEAN,
    statement="tau = (s2^2 n eps^2/8)^(1/4) minimises local_unbounded_mse.",
    assumptions=("s2 bounds the second moment of the values.",),
    outputs={"tau": "clip"},
)
def local_unbounded_tau(n: Rows, eps: EpsilonTarget, s2: SecondMoment) -> Outputs:
    return {"tau": (s2**2 * n * eps**2 / 8) ** 0.25}


@bound(
    "Unbounded mean in the local model",
    reference=_MEAN,
    statement="Clipping to [-tau, tau] and Laplace noise on every value estimate a mean with error at most"
    " s2/n + 2 s2^2/tau^2 + 16 tau^2/(n eps^2).",
    assumptions=("s2 bounds the second moment of the values.",),
    outputs={"mse": "mean squared error"},
)
def local_unbounded_mse(n: Rows, eps: EpsilonTarget, s2: SecondMoment, tau: Clip) -> Outputs:
    return {"mse": s2 / n + 2 * (s2 / tau) ** 2 + 16 * (tau / eps) ** 2 / n}


def _log_geometric(eps: float, k: int) -> float:
    """log of 1 + e^eps + ... + e^((k - 1) eps) = (e^(k eps) - 1)/(e^eps - 1)."""
    if k == 1 or eps == 0:
        return math.log(k)
    return (k - 1) * eps + math.log(math.expm1(-k * eps) / math.expm1(-eps))


def _grown(eps: float, delta: float) -> float:
    """e^eps delta, or 1 if that is larger."""
    return math.exp(min(eps + math.log(delta), 0.0)) if delta > 0 else 0.0


def _distinguished(fpr: float, fnr: float, delta: float) -> float:
    """The least epsilon for which (epsilon, delta)-indistinguishability allows a test with these error rates."""

    def branch(taken: float, missed: float) -> float:
        if taken <= 0:
            return -math.inf
        return math.log(taken / missed) if missed > 0 else math.inf

    return max(branch(1 - delta - fpr, fnr), branch(1 - delta - fnr, fpr))


def _upper_limit(count_name: str, count: int, trials_name: str, trials: int, confidence: float) -> float:
    if count > trials:
        raise DomainError(f"Expected {count_name}={count} <= {trials_name}={trials}")
    return float(betaincinv(count + 1, trials - count, confidence)) if count < trials else 1.0
