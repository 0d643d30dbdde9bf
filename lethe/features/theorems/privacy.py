"""Differential privacy: conversions, groups, composition with unlearning, measured epsilon, and private means.

Conversions are between Renyi divergence, Gaussian differential privacy and (epsilon, delta), by
`lethe.proof.conversion` and `lethe.proof.renyi`.
"""

import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import betaincinv

from lethe.features.theorems import symbols as sym
from lethe.features.theorems.bound import Outputs, bound, expect, root_gap
from lethe.proof import conversion, renyi
from lethe.proof.errors import InfeasibleError, NotionError

_MIRONOV = (
    'Mironov, "Renyi differential privacy", CSF 2017, Proposition 3; Chourasia, Shah, arXiv 2210.08911v2, Rem. 2.1'
)
_CKS = 'Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12'
_GDP = 'Dong, Roth, Su, "Gaussian differential privacy", JRSS B 84 (2022), arXiv 1905.02383, Corollary 2.13'
_EVENTS = "P(O) <= e^eps Q(O) + delta for every event O"
_SIDED = (
    "A bound of one direction of the divergence gives that direction of the inequality only: the result is as sided"
    " as the divergence.",
)
_EPS_SIDED = {"eps": "epsilon, nats, >= 0", "sided": "one or two, as the divergence"}
_CURVE = {"eps": "least epsilon over all orders, nats", "alpha": "the order that attains it; inf if tau = 0"}
_GROUPS = 'Vadhan, "The complexity of differential privacy", 2017, Lemma 2.2, with the sum of its proof kept'
_COMPOSED = 'Dwork, Roth, "The algorithmic foundations of differential privacy", 2014, Section 3.5'
_AUDIT = 'Jagielski, Ullman, Oprea, "Auditing differentially private machine learning", NeurIPS 2020'
_MEAN = 'Duchi, Jordan, Wainwright, "Local privacy and statistical minimax rates", FOCS 2013'


@bound(
    "Renyi to (epsilon, delta), Mironov",
    reference=_MIRONOV,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with eps = rho + log(1/delta)/(alpha - 1).",
    assumptions=_SIDED,
    outputs=_EPS_SIDED,
)
def rdp_to_dp_mironov(alpha: sym.Order, rho: sym.Divergence, delta: sym.Delta, sided: sym.Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_mironov(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound(
    "Renyi to (epsilon, delta), Canonne, Kamath, Steinke",
    reference=_CKS,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with"
    " eps = rho + log((alpha - 1)/alpha) - (log delta + log alpha)/(alpha - 1), or 0 if that is negative.",
    assumptions=_SIDED,
    outputs=_EPS_SIDED,
)
def rdp_to_dp_cks(alpha: sym.Order, rho: sym.Divergence, delta: sym.Delta, sided: sym.Sided = "one") -> Outputs:
    return {"eps": renyi.renyi_to_epsilon_cks(order=alpha, divergence=rho, delta=delta), "sided": sided}


@bound(
    "Renyi to delta, Canonne, Kamath, Steinke",
    reference=_CKS,
    statement=f"D_alpha(P || Q) <= rho implies {_EVENTS}, with"
    " delta = e^((alpha - 1)(rho - eps)) (1 - 1/alpha)^alpha / (alpha - 1), or 1 if that is larger.",
    assumptions=_SIDED,
    outputs={"delta": "delta, in [0, 1]"},
)
def rdp_delta_cks(alpha: sym.Order, rho: sym.Divergence, eps: sym.Epsilon) -> Outputs:
    return {"delta": renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)}


@bound(
    "Renyi to delta, the best that one order allows",
    reference='Asoodeh, Liao, Calmon, Kosut, Sankar, "Three variants of differential privacy", JSAIT 2021;'
    ' Balle, Barthe, Gaboardi, Hsu, Sato, "Hypothesis testing interpretations", AISTATS 2020',
    statement="The largest p - e^eps q over coins (p), (q) with D_alpha(p || q) <= rho: attained, by those coins.",
    assumptions=_SIDED,
    outputs={"delta": "delta, in [0, 1]"},
)
def rdp_delta_single_order_optimal(alpha: sym.Order, rho: sym.Divergence, eps: sym.Epsilon) -> Outputs:
    """Search along q: the permitted coins form a convex set, so that the largest p and the gain are concave in q."""
    above = renyi.renyi_to_delta_cks(order=alpha, divergence=rho, epsilon=eps)
    # The margin covers the rounding of the constraint, 0 at p = q. `relaxed` is log q without 1 - p and 1 - q; above
    # `top`, p = 1 is allowed, and the gain falls with q or is negative.
    budget = (alpha - 1) * rho + 1e-14
    relaxed = budget - alpha * (eps + math.log1p(1 / (alpha - 1)))
    top = -max(rho, eps, 1e-12)
    bottom = min(relaxed, top) + min(math.log(budget), 0.0) - 50
    if rho == 0 or bottom < -700:
        return {"delta": above}

    def excess(log_ratio: float, log_q: float) -> float:
        """Return (alpha - 1) (D_alpha(p || q) - rho) at p = e^log_ratio q."""
        q, p = math.exp(log_q), math.exp(min(log_ratio + log_q, 0.0))
        tails = alpha * math.log1p(-p) + (1 - alpha) * math.log1p(-q) if p < 1 else -math.inf
        return float(np.logaddexp(log_q + alpha * log_ratio, tails)) - budget

    def loss(log_q: float) -> float:
        """Return e^eps q - p at the largest p."""
        log_ratio = widest = -log_q
        if excess(widest, log_q) > 0:
            log_ratio = brentq(excess, 0.0, widest, args=(log_q,), xtol=1e-15, maxiter=10_000)
        return math.exp(log_q + eps) - math.exp(log_q + log_ratio)

    minimum = minimize_scalar(loss, bounds=(bottom, top), method="bounded", options={"xatol": 1e-9}).fun
    gain = -min(loss(top), float(minimum)) * (1 + 1e-10)
    return {"delta": min(max(gain, math.ulp(0.0)), above)}


@bound(
    "Linear Renyi curve to (epsilon, delta), Mironov",
    reference=_MIRONOV,
    statement="D_alpha <= tau alpha for every alpha implies eps = tau + 2 sqrt(tau log(1/delta)).",
    assumptions=_SIDED,
    outputs=_CURVE,
)
def rdp_linear_mironov(tau: sym.Slope, delta: sym.Delta) -> Outputs:
    at = renyi.gaussian_epsilon_mironov(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound(
    "Linear Renyi curve to (epsilon, delta), Canonne, Kamath, Steinke",
    reference=_CKS,
    statement="The least rdp_to_dp_cks(alpha, tau alpha, delta) over all real alpha > 1.",
    assumptions=_SIDED,
    outputs=_CURVE,
)
def rdp_linear_cks(tau: sym.Slope, delta: sym.Delta) -> Outputs:
    at = renyi.gaussian_epsilon_cks(mu=math.sqrt(2 * tau), delta=delta)
    return {"eps": at.epsilon, "alpha": at.order}


@bound(
    "Largest slope of a linear Renyi curve that meets (epsilon, delta)",
    reference=_MIRONOV,
    statement="tau = (sqrt(log(1/delta) + eps) - sqrt(log(1/delta)))^2, the inverse of rdp_linear_mironov.",
    outputs={"tau": "slope, nats"},
)
def tau_star(eps: sym.EpsilonTarget, delta: sym.Delta) -> Outputs:
    return {"tau": root_gap(-math.log(delta), eps) ** 2}


@bound(
    "Gaussian differential privacy to delta",
    reference=_GDP,
    statement=f"mu-GDP implies {_EVENTS}, with delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu): exact.",
    outputs={"delta": "delta, in [0, 1], rounded up"},
)
def gdp_delta(eps: sym.Epsilon, mu: sym.Mu) -> Outputs:
    return {"delta": conversion.gdp_delta(epsilon=eps, mu=mu)}


@bound(
    "Gaussian differential privacy to epsilon",
    reference=_GDP,
    statement="The inverse of gdp_delta in eps; 0 if delta >= gdp_delta(0, mu).",
    outputs={"eps": "epsilon, nats, rounded up"},
)
def gdp_eps(mu: sym.Mu, delta: sym.Delta) -> Outputs:
    return {"eps": conversion.gdp_epsilon(mu=mu, delta=delta)}


@bound(
    "Largest mu that meets (epsilon, delta)",
    reference=_GDP,
    statement="The inverse of gdp_delta in mu.",
    outputs={"mu": "mu, rounded down"},
)
def gdp_mu(eps: sym.Epsilon, delta: sym.Delta) -> Outputs:
    return {"mu": conversion.gdp_mu(epsilon=eps, delta=delta)}


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
def group_privacy(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
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
def group_privacy_inverse(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
    return {"eps": eps / k, "delta": delta * math.exp(-_log_geometric(eps / k, k))}


@bound(
    "Per-record target for a group target, as often printed",
    reference=_GROUPS,
    statement="(eps/k, delta (e^eps - 1)/(e^(k eps) - 1)): group_privacy solved for delta with the group's eps where"
    " the record's belongs; valid, and stricter than group_privacy_inverse by a factor that grows like e^((k - 1)"
    " eps).",
    outputs={"eps": "epsilon per record, nats", "delta": "delta per record, needlessly small"},
)
def group_privacy_inverse_as_printed(eps: sym.Epsilon, delta: sym.DeltaOrOne, k: sym.Group) -> Outputs:
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
    eps: sym.Epsilon,
    delta: sym.DeltaOrOne,
    eps_u: sym.Epsilon,
    delta_u: sym.DeltaOrOne,
    uniform_over_starts: sym.UniformStart = True,
    group_size: sym.Group | None = None,
    forget_size: sym.Group | None = None,
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
def eps_hat(fpr: sym.Rate, fnr: sym.Rate, delta: sym.DeltaOrZero) -> Outputs:
    return {"eps": _distinguished(fpr, fnr, delta), "estimate": True}


@bound(
    "Upper confidence limit of a rate",
    reference="Clopper, Pearson, Biometrika 26 (1934)",
    statement="With probability conf the rate of x successes in n trials is at most the conf-quantile of"
    " Beta(x + 1, n - x); 1 if x = n.",
    assumptions=("The trials are independent and equally distributed.",),
    outputs={"upper": "upper limit of the rate"},
)
def clopper_pearson_upper(x: sym.Count, n: sym.Trials, conf: sym.Confidence) -> Outputs:
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
    fp: sym.Count,
    n0: sym.Trials,
    fn: sym.Count,
    n1: sym.Trials,
    delta: sym.DeltaOrZero,
    gamma: sym.Miss,
    rules: sym.Rules = 1,
    rule_fixed_in_advance: sym.FixedRule = True,
    independent_runs: sym.IndependentRuns = True,
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
def central_mean_mse(
    n: sym.Rows, eps: sym.EpsilonTarget, var: sym.ValueVariance = 0.25, width: sym.Width = 1.0
) -> Outputs:
    return {"mse": var / n + 2 * (width / (n * eps)) ** 2}


@bound(
    "Mean in the local model",
    reference=_MEAN,
    statement="Laplace noise on every value estimates a mean with error var/n + 2 width^2/(n eps^2).",
    assumptions=("All values lie in an interval of the given width.",),
    outputs={"mse": "mean squared error"},
)
def local_mean_mse(
    n: sym.Rows, eps: sym.EpsilonTarget, var: sym.ValueVariance = 0.25, width: sym.Width = 1.0
) -> Outputs:
    return {"mse": var / n + 2 * (width / eps) ** 2 / n}


@bound(
    "Best clip for an unbounded mean in the local model",
    reference=_MEAN,
    statement="tau = (s2^2 n eps^2/8)^(1/4) minimises local_unbounded_mse.",
    assumptions=("s2 bounds the second moment of the values.",),
    outputs={"tau": "clip"},
)
def local_unbounded_tau(n: sym.Rows, eps: sym.EpsilonTarget, s2: sym.SecondMoment) -> Outputs:
    return {"tau": (s2**2 * n * eps**2 / 8) ** 0.25}


@bound(
    "Unbounded mean in the local model",
    reference=_MEAN,
    statement="Clipping to [-tau, tau] and Laplace noise on every value estimate a mean with error at most"
    " s2/n + 2 s2^2/tau^2 + 16 tau^2/(n eps^2).",
    assumptions=("s2 bounds the second moment of the values.",),
    outputs={"mse": "mean squared error"},
)
def local_unbounded_mse(n: sym.Rows, eps: sym.EpsilonTarget, s2: sym.SecondMoment, tau: sym.Clip) -> Outputs:
    return {"mse": s2 / n + 2 * (s2 / tau) ** 2 + 16 * (tau / eps) ** 2 / n}


def _log_geometric(eps: float, k: int) -> float:
    """Return the log of 1 + e^eps + ... + e^((k - 1) eps) = (e^(k eps) - 1)/(e^eps - 1)."""
    if k == 1 or eps == 0:
        return math.log(k)
    return (k - 1) * eps + math.log(math.expm1(-k * eps) / math.expm1(-eps))


def _grown(eps: float, delta: float) -> float:
    """Return e^eps delta, at most 1."""
    return math.exp(min(eps + math.log(delta), 0.0)) if delta > 0 else 0.0


def _distinguished(fpr: float, fnr: float, delta: float) -> float:
    """Return the minimum epsilon whose (epsilon, delta)-indistinguishability allows a test with these error rates."""

    def branch(excess: float, rate: float) -> float:
        if excess <= 0:
            return -math.inf
        return math.log(excess / rate) if rate > 0 else math.inf

    return max(branch(1 - delta - fpr, fnr), branch(1 - delta - fnr, fpr))


def _upper_limit(count_name: str, count: int, trials_name: str, trials: int, confidence: float) -> float:
    expect(count <= trials, f"{count_name}={count} <= {trials_name}={trials}")
    return float(betaincinv(count + 1, trials - count, confidence)) if count < trials else 1.0
