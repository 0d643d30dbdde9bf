"""The symbols of the theorems: what each means, its unit and its range. And the hypotheses P1 to P6 they share.

One algorithm underlies nearly all of them, projected noisy gradient descent on n rows,

    x <- Proj_R(x - eta grad f(x) + sqrt(2 eta sigma^2) N(0, I)),
    f(x) = (1/n) sum_i loss(x; row_i) + (lambda/2) |x|^2,

in two vocabularies. Chourasia and Shah call the Lipschitz constant of the data loss L, its smoothness beta, the strong
convexity lambda (`lam`) and the order q; Chien, Wang, Chen and Li call the Lipschitz constant M (`Mlip`), the
smoothness of the objective L = lambda + beta, the strong convexity m and the order alpha. Each bound keeps its paper's.
"""

from typing import Annotated

from lethe.proof.errors import NotionError, PreconditionError
from lethe.theorems.bound import Domain, choice, hypothesis, integer, real

MOST_STEPS = 1_000_000
"""Longest recursion that is summed step by step."""

# divergences
Order = Annotated[float, real("Renyi order", "(1, inf)")]
OrderOrInfinity = Annotated[float, real('Renyi order; "inf" for the max-divergence', "(1, inf]")]
Divergence = Annotated[float, real("Renyi divergence at that order, nats", "[0, inf)", "nats")]
Slope = Annotated[
    float, real("slope of a linear Renyi curve, D_alpha <= tau alpha for every alpha", "[0, inf)", "nats")
]
Epsilon = Annotated[float, real("epsilon, nats", "[0, inf)", "nats")]
EpsilonTarget = Annotated[float, real("target epsilon, nats", "(0, inf)", "nats")]
Delta = Annotated[float, real("delta", "(0, 1)")]
DeltaOrZero = Annotated[float, real("delta", "[0, 1)")]
DeltaOrOne = Annotated[float, real("delta", "[0, 1]")]
Mu = Annotated[float, real("mu of Gaussian differential privacy", "[0, inf)")]
MuTarget = Annotated[float, real("target mu", "(0, inf)")]
Rate = Annotated[float, real("a probability", "[0, 1]")]
Advantage = Annotated[float, real("advantage of a test: true positive minus false positive rate", "[0, 1]")]
Mus = Annotated[list[float], Domain(kind="reals", meaning="one mu per release", interval="[0, inf)")]

# data
Rows = Annotated[int, integer("rows n of the data; replaced rows count, so n is fixed", "[1, 1e15]", "rows")]
Group = Annotated[int, integer("rows of one person, or of one batch, that differ", "[1, 1e15]", "rows")]
Records = Annotated[int, integer("records to delete in all", "[1, 1e15]", "records")]
Batch = Annotated[int, integer("records per request", "[1, 1e15]", "records")]
Dimension = Annotated[int, integer("number of parameters of the model", "[1, 1e15]", "parameters")]
Count = Annotated[int, integer("a count", "[0, 1e15]")]
Trials = Annotated[int, integer("number of trials", "[1, 1e15]")]
Weights = Annotated[
    list[int], Domain(kind="integers", meaning="rows changed by each edit", interval="[1, 1e15]", unit="rows")
]

# objective and algorithm
Lipschitz = Annotated[float, real("bound of the gradient norm of the data loss, for every admissible row", "(0, inf)")]
Smoothness = Annotated[float, real("smoothness of the objective: its gradient is L-Lipschitz", "(0, inf)")]
DataSmoothness = Annotated[float, real("smoothness of the data loss: its gradient is beta-Lipschitz", "[0, inf)")]
Convexity = Annotated[float, real("strong convexity of the objective", "(0, inf)")]
ConvexityOrZero = Annotated[float, real("strong convexity of the objective", "[0, inf)")]
StepSize = Annotated[float, real("step size", "(0, inf)")]
Noise = Annotated[float, real("noise scale: each step adds variance 2 eta sigma^2 per coordinate", "(0, inf)")]
Steps = Annotated[int, integer("noisy steps", "[0, 1e15]", "steps")]
StepsSummed = Annotated[int, integer("noisy steps, summed one by one", f"[0, {MOST_STEPS}]", "steps")]
StepsAtLeastOne = Annotated[int, integer("noisy steps", "[1, 1e15]", "steps")]
StepList = Annotated[
    list[int], Domain(kind="integers", meaning="noisy steps of each request", interval="[0, 1e15]", unit="steps")
]
Ages = Annotated[
    list[int], Domain(kind="integers", meaning="noisy steps run since each edit", interval="[0, 1e15]", unit="steps")
]
AtMost = Annotated[int, integer("give up beyond this many steps", "[1, 1e15]", "steps")]
Radius = Annotated[float, real("radius of the ball onto which every step projects", "[0, inf)")]
PositiveRadius = Annotated[float, real("radius of the ball onto which every step projects", "(0, inf)")]
Contraction = Annotated[float, real("Lipschitz constant of a noiseless step", "[0, inf)")]
ContractionAtMostOne = Annotated[float, real("Lipschitz constant of a noiseless step", "[0, 1]")]
ContractionBelowOne = Annotated[float, real("Lipschitz constant of a noiseless step", "(0, 1)")]
LogSobolev = Annotated[float, real("log-Sobolev constant, KL <= C/2 Fisher information: v for N(., v I)", "(0, inf)")]
ExcessRisk = Annotated[float, real("expected excess empirical risk", "[0, inf)")]
Variance = Annotated[float, real("variance per coordinate", "(0, inf)")]

Regime = Annotated[
    str, choice("nc: only smooth; cvx: also convex; sc: also strongly convex and converged", "nc", "cvx", "sc")
]
OpenRegime = Annotated[str, choice("nc: only smooth; cvx: also convex", "nc", "cvx")]
Sided = Annotated[str, choice("whether the divergence is bounded in one direction or in both", "one", "two")]

# hypotheses that a caller may deny, and what the denial raises
NonAdaptive = Annotated[bool, hypothesis("the requests do not depend on any published model", NotionError)]
Converged = Annotated[
    bool, hypothesis("the start is the stationary law of the learning chain (else use shift_mu)", PreconditionError)
]
Projected = Annotated[bool, hypothesis("every step of both runs projects onto the ball", PreconditionError)]
FullGradient = Annotated[
    bool, hypothesis("Mlip bounds the full gradient on the ball, regulariser included", PreconditionError)
]

P1 = "P1: the strong convexity and the smoothness hold for every admissible database; every parameter is regularised."
P2 = "P2: the step size is below the inverse of the smoothness of the objective."
P3 = "P3: rows are admissible: scaled to the norm for which the gradient bound and the smoothness were computed."
P4 = (
    "P4: a gradient bound that comes from clipping is that of a generalised linear model, or the clip is never active:"
    " elsewhere clipping destroys convexity."
)
P5 = (
    "P5: every step is full batch with weight 1/n per row; no momentum, adaptive step, batch norm, or early stopping"
    " that looks at data."
)
P6 = "P6: the real run and its reference have the same step size, noise scale and schedule."
CONVEX = (P1, P2, P3, P4, P5, P6)
HIDDEN = "Only the last iterate is seen: no other iterate, seed, log or checkpoint of the run leaves the boundary."

FORGET = 'Chourasia, Shah, "Forget unlearning: towards true data-deletion in machine learning", arXiv 2210.08911v2'
LANGEVIN = 'Chien, Wang, Chen, Li, "Langevin unlearning", NeurIPS 2024, arXiv 2401.10371'
SHIFTED = 'Bok, Su, Altschuler, "Shifted interpolation for differential privacy", ICML 2024, arXiv 2403.00278'
KOLOSKOVA = 'Koloskova, Allouah, Jha, Guerraoui, Koyejo, "Certified unlearning for neural networks", arXiv 2506.06985'
