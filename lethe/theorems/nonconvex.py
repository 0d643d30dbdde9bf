"""Bounded losses without convexity: Gibbs laws and Theorem 5.2 of Chourasia and Shah.

Theory rather than a product: the step size shrinks like 1/(d q B), so that a hundred parameters take millions of steps.
"""

import math
from typing import Annotated

from lethe.proof.errors import DomainError
from lethe.theorems.bound import Outputs, bound, real, require, steps_up
from lethe.theorems.symbols import (
    FORGET,
    LANGEVIN,
    Convexity,
    DataSmoothness,
    Dimension,
    Divergence,
    EpsilonTarget,
    Group,
    Lipschitz,
    Noise,
    Order,
    Rows,
    Steps,
    StepSize,
    Variance,
)

Boundedness = Annotated[float, real("B: the loss takes values in [-b, b] with b = sigma^2 log(B)/4", "(1, inf)")]
PotentialGap = Annotated[float, real("largest difference of the two objectives, anywhere", "[0, inf)")]
RecordGap = Annotated[float, real("largest difference of the losses of two records, anywhere", "[0, inf)")]
LargestLoss = Annotated[float, real("largest absolute value of the loss, anywhere", "[0, inf)")]
LearningSteps = Annotated[Steps | None, real("steps of learning actually run; the least by default", "[0, 1e15]")]

_BOUNDED = "The loss is beta-smooth and takes values in [-b, b], b = sigma^2 log(B)/4; it need not be convex."
_GIBBS = {"bound": "Renyi divergence of the Gibbs laws at every order, both directions, nats"}


@bound(
    "Convergence of noisy gradient descent to the Gibbs law",
    reference=f"{FORGET}, Theorem G.22",
    statement="From any start with divergence R0, R_q after K steps is at most"
    " q R0 e^(-lambda eta K/(2B)) + 32 d eta q B (beta + lambda)^2/lambda.",
    assumptions=(_BOUNDED,),
    outputs={"bound": "Renyi divergence from the Gibbs law at order q, one direction, nats"},
)
def g22(
    q: Order,
    R0: Divergence,
    lam: Convexity,
    beta: DataSmoothness,
    B: Boundedness,
    d: Dimension,
    eta: StepSize,
    K: Steps,
) -> Outputs:
    largest = _largest_step(q, lam, beta, B)
    require(eta <= largest, "step_size_of_convergence", f"eta={eta} <= lam/(64 B q^2 (beta + lam)^2) = {largest:.6g}")
    bias = 32 * d * eta * q * B * (beta + lam) ** 2 / lam
    return {"bound": q * math.exp(-lam * eta * K / (2 * B)) * R0 + bias}


@bound(
    "Gibbs laws of nearby objectives",
    reference=f"{FORGET}, Lemma G.23",
    statement="If two objectives differ by at most c everywhere, their Gibbs laws at temperature sigma^2 are within"
    " R_q <= 2c/sigma^2, for every q.",
    outputs=_GIBBS,
)
def g23(c: PotentialGap, sigma: Noise) -> Outputs:
    return {"bound": 2 * c / sigma**2}


@bound(
    "Excess risk of the Gibbs law",
    reference=f"{FORGET}, Theorem G.24",
    statement="The Gibbs law has excess risk at most d sigma^2/2 (log((beta + lambda)/lambda) + sqrt(B)).",
    assumptions=(_BOUNDED,),
    outputs={"err": "expected excess empirical risk"},
)
def g24(d: Dimension, sigma: Noise, lam: Convexity, beta: DataSmoothness, B: Boundedness) -> Outputs:
    return {"err": d * sigma**2 / 2 * (math.log1p(beta / lam) + math.sqrt(B))}


@bound(
    "Gibbs laws of data sets that differ in one record",
    reference=f"{LANGEVIN}, Proposition E.1, with the temperature sigma^2",
    statement="If the losses of two records differ by at most F everywhere, the Gibbs laws are within 2F/(n sigma^2).",
    outputs={"eps": _GIBBS["bound"]},
)
def pE1(F: RecordGap, n: Rows, sigma: Noise) -> Outputs:
    return {"eps": 2 * F / (n * sigma**2)}


@bound(
    "Data deletion without convexity",
    reference=f"{FORGET}, Theorem 5.2, with the step size completed",
    statement="With step size eta, (q, eps_dd)-data-deletion from the Gibbs law after K_A steps of learning and"
    " K_Abar per deletion; the printed step size omits the condition of Theorem G.22, which it implies only if q"
    " eps_dd <= d, and the printed K_Abar takes K_A at its least.",
    assumptions=(
        _BOUNDED,
        "Requests are non-adaptive; the guarantee has one direction.",
        "Started from N(0, sigma^2/lambda I).",
    ),
    outputs={
        "eta_printed": "step size of the printed theorem",
        "eta_g22": "step size that Theorem G.22 needs",
        "eta": "step size to use: the smaller one",
        "K_A": "steps of learning",
        "K_Abar": "steps per deletion: 2B/(lambda eta) log(2q(eps_dd + r/n log B)/eps_dd)",
        "K_Abar_printed": "the same as printed: K_A - 2B/(lambda eta) log(log B/(2(eps_dd + r/n log B)))",
        "loss_bound": "the loss must lie in [-loss_bound, loss_bound]",
        "eps_dp_actual": "Renyi privacy of all iterates at order q, by g7_rdp, nats",
        "cheaper_than_retraining": "whether r/n <= 1/2 - eps_dd/log B",
    },
)
def t52(
    lam: Convexity,
    beta: DataSmoothness,
    L: Lipschitz,
    q: Order,
    B: Boundedness,
    eps_dp: EpsilonTarget,
    eps_dd: EpsilonTarget,
    n: Rows,
    d: Dimension,
    r: Group,
    sigma2: Variance,
    max_abs_loss: LargestLoss | None = None,
    steps_learned: LearningSteps = None,
) -> Outputs:
    if not eps_dd <= eps_dp <= d:  # the paper's eps_dp < d serves its risk bound; at equality nothing here changes
        raise DomainError(f"Expected eps_dd={eps_dd} <= eps_dp={eps_dp} <= d={d}")
    if r > n:
        raise DomainError(f"Expected r={r} <= n={n}")
    log_B = math.log(B)
    loss_bound = sigma2 * log_B / 4
    require(max_abs_loss is None or max_abs_loss <= loss_bound, "bounded_loss", f"{max_abs_loss} <= {loss_bound:.6g}")
    printed = lam * eps_dd / (64 * d * q * B * (beta + lam) ** 2)
    largest = _largest_step(q, lam, beta, B)
    eta = min(printed, largest)
    unit = 2 * B / (lam * eta)
    shift = eps_dd + r / n * log_B
    least = unit * math.log(q * log_B / eps_dd)
    learning = steps_up(least)
    deletion = steps_up(unit * math.log(2 * q * shift / eps_dd))
    run = learning if steps_learned is None else steps_learned
    require(run >= learning, "enough_learning", f"steps_learned={run} >= K_A={learning}")
    eps_dp_actual = q * L**2 / (sigma2 * n**2) * eta * max(run, deletion)
    require(eps_dp_actual <= eps_dp, "noise_for_privacy", f"eps_dp_actual={eps_dp_actual:.6g} <= eps_dp={eps_dp}")
    return {
        "eta_printed": printed,
        "eta_g22": largest,
        "eta": eta,
        "K_A": learning,
        "K_Abar": deletion,
        "K_Abar_printed": steps_up((least if steps_learned is None else run) - unit * math.log(log_B / (2 * shift))),
        "loss_bound": loss_bound,
        "eps_dp_actual": eps_dp_actual,
        "cheaper_than_retraining": r / n <= 0.5 - eps_dd / log_B,
    }


def _largest_step(q: float, lam: float, beta: float, B: float) -> float:
    """The step size up to which Theorem G.22 holds."""
    return lam / (64 * B * q**2 * (beta + lam) ** 2)
