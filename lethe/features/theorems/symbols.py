"""The theorems' symbols, each with its meaning, unit and range.

One algorithm underlies nearly all of them, projected noisy gradient descent on n rows,

    x <- Proj_R(x - eta grad f(x) + sqrt(2 eta sigma^2) N(0, I)),
    f(x) = (1/n) sum_i loss(x; row_i) + (lambda/2) |x|^2,

in two vocabularies. Chourasia and Shah call the Lipschitz constant of the data loss L, its smoothness beta, the strong
convexity lambda (`lam`) and the order q; Chien, Wang, Chen and Li call the Lipschitz constant M (`Mlip`), the
smoothness of the objective L = lambda + beta, the strong convexity m and the order alpha. Each bound keeps the symbols
of its paper.
"""

from typing import Annotated

from lethe.features.theorems.bound import Domain, choice, hypothesis, integer, notion, real

MAX_SUMMED_STEPS = 1_000_000
"""Maximum number of steps in a recursion that is summed step by step."""

# Divergences.
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
Mus = Annotated[list[float], Domain("reals", "one mu per release", "[0, inf)")]

# Data.
Rows = Annotated[int, integer("rows n of the data; replaced rows count, so n is fixed", "[1, 1e15]", "rows")]
Group = Annotated[int, integer("rows of one person, or of one batch, that differ", "[1, 1e15]", "rows")]
Records = Annotated[int, integer("records to delete in all", "[1, 1e15]", "records")]
Batch = Annotated[int, integer("records per request", "[1, 1e15]", "records")]
Dimension = Annotated[int, integer("number of parameters of the model", "[1, 1e15]", "parameters")]
Count = Annotated[int, integer("a count", "[0, 1e15]")]
Trials = Annotated[int, integer("number of trials", "[1, 1e15]")]
Weights = Annotated[list[int], Domain("integers", "rows changed by each edit", "[1, 1e15]", "rows")]

# Objective and algorithm.
Lipschitz = Annotated[float, real("bound of the gradient norm of the data loss, for every admissible row", "(0, inf)")]
Smoothness = Annotated[float, real("smoothness of the objective: its gradient is L-Lipschitz", "(0, inf)")]
DataSmoothness = Annotated[float, real("smoothness of the data loss: its gradient is beta-Lipschitz", "[0, inf)")]
Convexity = Annotated[float, real("strong convexity of the objective", "(0, inf)")]
ConvexityOrZero = Annotated[float, real("strong convexity of the objective", "[0, inf)")]
StepSize = Annotated[float, real("step size", "(0, inf)")]
Noise = Annotated[float, real("noise scale: each step adds variance 2 eta sigma^2 per coordinate", "(0, inf)")]
Steps = Annotated[int, integer("noisy steps", "[0, 1e15]", "steps")]
StepsSummed = Annotated[int, integer("noisy steps, summed one by one", f"[0, {MAX_SUMMED_STEPS}]", "steps")]
StepsAtLeastOne = Annotated[int, integer("noisy steps", "[1, 1e15]", "steps")]
StepList = Annotated[list[int], Domain("integers", "noisy steps of each request", "[0, 1e15]", "steps")]
Ages = Annotated[list[int], Domain("integers", "noisy steps run since each edit", "[0, 1e15]", "steps")]
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
    str,
    choice("nc: only smooth; cvx: also convex; sc: also strongly convex and converged", choices=("nc", "cvx", "sc")),
]
OpenRegime = Annotated[str, choice("nc: only smooth; cvx: also convex", choices=("nc", "cvx"))]
Sided = Annotated[str, choice("whether the divergence is bounded in one direction or in both", choices=("one", "two"))]

# Hypotheses that a caller may deny, and the error of the denial.
NonAdaptive = Annotated[bool, notion("the requests do not depend on any published model")]
Converged = Annotated[bool, hypothesis("the start is the stationary law of the learning chain (else use shift_mu)")]
Projected = Annotated[bool, hypothesis("every step of both runs projects onto the ball")]
FullGradient = Annotated[bool, hypothesis("Mlip bounds the full gradient on the ball, regulariser included")]

# Groups, trials and means.
UniformStart = Annotated[
    bool, notion("the unlearning guarantee holds from every start model, not only from a converged one")
]
FixedRule = Annotated[bool, hypothesis("the decision rules were fixed before the test data were seen")]
IndependentRuns = Annotated[bool, hypothesis("every trial is a fresh run of (un)learning, independent of the others")]
Confidence = Annotated[float, real("confidence of the limit", "(0, 1)")]
Miss = Annotated[float, real("probability with which the limit may fail", "(0, 1)")]
Rules = Annotated[int, integer("decision rules tried; gamma is shared among them", "[1, 1e15]")]
SecondMoment = Annotated[float, real("bound of the second moment E x^2", "(0, inf)")]
Clip = Annotated[float, real("values are clipped to [-tau, tau]", "(0, inf)")]
ValueVariance = Annotated[float, real("variance of one value; 1/4 is the largest on [0, 1]", "[0, inf)")]
Width = Annotated[float, real("width of the interval the values lie in", "(0, inf)")]

# Requesters who watch, and losses without convexity.
DeletionRequest = Annotated[int, integer("index of the deletion request", "[4, 1e9]")]
FirstRelease = Annotated[int, integer("index of the first release that is counted", "[1, 1e9]")]
Releases = Annotated[int, integer("number of releases", "[0, 1e9]")]
VersionsSeen = Annotated[
    int, integer("versions with the record in it that anybody who can influence requests may have seen", "[0, 1e15]")
]
ReleasesAfter = Annotated[int, integer("versions published after the deletion", "[1, 1e15]")]
CertificateScope = Annotated[
    str,
    choice(
        "joint: eps bounds the versions together with the history of requests; marginal: each version on its own, as"
        " the theorem is printed, which suffices only if p = 0 or releases = 1",
        choices=("joint", "marginal"),
    ),
]
Counted = Annotated[
    str,
    choice(
        "what p counts: all_versions; observed, where eps_dp is a chain bound (given the version observed before); or"
        " observed_only, as the theorem is printed, which loses what unobserved versions carry on",
        choices=("all_versions", "chain_bound", "observed_only"),
    ),
]
LowerLimit = Annotated[bool, hypothesis("adv is a lower confidence limit, not a point estimate")]
Conditional = Annotated[
    bool,
    notion(
        "eps_dd and eps_dp hold conditionally on every fixed published model; the printed theorem asks for less and is"
        " then false (a version may carry a pad that an adaptive request keys to the record)"
    ),
]
ConvexitySmoothed = Annotated[
    DataSmoothness | None, real("smoothness of the data loss; if not given, the caller establishes P2", "[0, inf)")
]
Boundedness = Annotated[float, real("B: the loss takes values in [-b, b] with b = sigma^2 log(B)/4", "(1, inf)")]
PotentialGap = Annotated[float, real("largest difference of the two objectives, anywhere", "[0, inf)")]
RecordGap = Annotated[float, real("largest difference of the losses of two records, anywhere", "[0, inf)")]
LargestLoss = Annotated[float, real("largest absolute value of the loss, anywhere", "[0, inf)")]
LearningSteps = Annotated[Steps | None, real("steps of learning actually run; the least by default", "[0, 1e15]")]

# Log-Sobolev constants, sequences of requests, and Descent-to-Delete.
GradientBoundOrZero = Annotated[float, real("bound of the full gradient on the ball", "[0, inf)")]
StepNoise = Annotated[
    float, real("noise variance per step xi: 2 eta sigma^2, or eta sigma^2 for half a step", "(0, inf)")
]
PositiveDivergence = Annotated[float, real("Renyi divergence, nats", "(0, inf)", "nats")]
RenyiSlope = Annotated[float, real("learning is RDP with epsilon_0(alpha) = eps0_coef alpha", "[0, inf)")]
Orders = Annotated[list[float], Domain("reals", "orders of the three values", "(1, inf)")]
Iterations = Annotated[int, integer("gradient steps per request", "[1, 1e15]", "steps")]
Request = Annotated[int, integer("index of the request", "[1, 1e15]")]
AddRemove = Annotated[bool, notion("neighbours differ by adding or removing one record, not by replacing one")]
Purpose = Annotated[
    str,
    choice(
        "baseline: for comparison; certificate: refused, because the noiseless state is kept secretly",
        choices=("baseline", "certificate"),
    ),
]

# Starts, segments and batches.
StartDistance = Annotated[float, real("largest distance of the two starts", "[0, inf)")]
Segments = Annotated[
    list[tuple[int, float]],
    Domain(
        "segments", "pairs [steps, largest difference of the two gradients during them]; both nonnegative", "[0, inf)"
    ),
]
RowPresent = Annotated[
    bool, hypothesis("the row is in the data during the whole segment (else count from its insertion)")
]
Notions = Annotated[list[str] | None, Domain("words", "notion of each mu, if known; they must all be the same")]
Batches = Annotated[int, integer("batches, of which each step reads the next", "[1, 1e15]", "batches")]
BatchGap = Annotated[
    float,
    real("largest difference of the gradients of the row's batch: 2M/b if one of its b rows is replaced", "(0, inf)"),
]
Cooldown = Annotated[
    int, integer("the last q of the T steps, over which the step size falls evenly to eta/q", "[1, 10000]", "steps")
]

# Selection, mini-batches and clipping.
Accepted = Annotated[float, real("least probability of acceptance", "(0, 1]")]
BothRuns = Annotated[
    bool, hypothesis("p_accept bounds the acceptance probability of the real run and of its reference")
]
BatchSize = Annotated[int, integer("rows per mini-batch", "[1, 1e15]")]
FixedOrder = Annotated[bool, hypothesis("the order of the batches is fixed and does not depend on data")]
StartGap = Annotated[float, real("largest Wasserstein distance of the two starts", "[0, inf)")]
Separation = Annotated[float, real("distance of the means of two unit Gaussians", "(0, inf)")]
StartDelta = Annotated[
    float, real("delta of the start at eps; 1 if nothing is known (above 1 says no more)", "(0, inf)")
]
ModelClip = Annotated[float, real("norm to which every iterate is clipped", "(0, inf)")]
StartClip = Annotated[float, real("norm to which the start is clipped", "[0, inf)")]
GradientClip = Annotated[float, real("norm to which every gradient is clipped", "[0, inf)")]
Decay = Annotated[float, real("weight decay", "[0, inf)")]
NoisePerStep = Annotated[float, real("standard deviation of the noise of one step, per coordinate", "(0, inf)")]
NoiseEveryStep = Annotated[bool, hypothesis("every step clips and then adds noise")]
