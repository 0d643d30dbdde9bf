"""Technical terms of the pages, each with a label and a sentence that explains the term.

A template writes `ui.term("epsilon")`, a button that opens the sentence; each page has all sentences once, at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from app.features.desk.languages import gettext, marked


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A technical term: its default label on a page, and the sentence that explains the term."""

    label: str
    says: str


TERMS: Mapping[str, Term] = {
    # Guarantees
    "epsilon": Term(
        label=marked("ε"),
        says=marked(
            "Epsilon bounds how far what is published may depend on somebody: at 0 an attacker learns nothing of "
            "them and is right as often as a coin, and the larger it is, the more often the attacker may be right."
        ),
    ),
    "delta": Term(
        label=marked("δ"),
        says=marked(
            "Delta bounds the probability that the bound by epsilon leaves out, and has to stay below one over the "
            "number of rows."
        ),
    ),
    "mu": Term(
        label=marked("μ"),
        says=marked(
            "Mu is the distance between the two worlds an attacker has to tell apart, in standard deviations of the "
            "noise, from which epsilon follows at every delta."
        ),
    ),
    "attacker": Term(
        label=marked("Best possible attack"),
        says=marked(
            "The largest share of cases in which an attacker who knows everything but the noise can say which of two "
            "equally likely worlds is real; a coin is right in 50 %."
        ),
    ),
    "target": Term(
        label=marked("Target"),
        says=marked("The epsilon and delta that every request has to reach before its version may be published."),
    ),
    "forgotten_epsilon": Term(
        label=marked("Residual ε"),
        says=marked(
            "The bound on how far the live version differs from one learned without everybody it was made to forget; "
            "it says nothing about people who still wait."
        ),
    ),
    "still_in_it": Term(
        label=marked("Awaiting erasure"),
        says=marked(
            "People who asked to be forgotten and whose rows no run has taken up yet, so that no guarantee is about "
            "them."
        ),
    ),
    "notion": Term(
        label=marked("Guarantee"),
        says=marked(
            "Unlearning is about everybody forgotten so far together, deletion about one person, adaptive about "
            "somebody who keeps every version, and release about what one version adds to the one before."
        ),
    ),
    "reference": Term(
        label=marked("Compares"),
        says=marked("The other world of the guarantee: what would have been published had things gone as it says."),
    ),
    "influence": Term(
        label=marked("Influence"),
        says=marked("The largest distance by which the records that were forgotten can have moved the weights."),
    ),
    "presence": Term(
        label=marked("Of one"),
        says=marked("The largest distance by which one record that is still in the data can have moved the weights."),
    ),
    "share_of_budget": Term(
        label=marked("Share of μ²"),
        says=marked(
            "The part of what one record has given away so far that is due to this model; squares of mu add up over "
            "versions."
        ),
    ),
    "releases_left": Term(
        label=marked("Fit the budget"),
        says=marked("How many more versions, each forgetting one record, can be published before the budget is spent."),
    ),
    "largest_batch": Term(
        label=marked("Largest batch cheaper than retraining"),
        says=marked(
            "The number of records that can be forgotten in one run with fewer steps than learning again from "
            "scratch takes."
        ),
    ),
    # Deadlines
    "median_days": Term(
        label=marked("Median"),
        says=marked(
            "Of the requests completed in these weeks, half took no more whole days from when they were submitted."
        ),
    ),
    "p90_days": Term(
        label=marked("90th percentile"),
        says=marked(
            "Of the requests completed in these weeks, nine in ten took no more whole days from when they were "
            "submitted."
        ),
    ),
    "share_in_time": Term(
        label=marked("On time"),
        says=marked(
            "The share of the requests completed in these weeks that were completed before their deadline, as "
            "extensions and pauses had moved it."
        ),
    ),
    # Runs
    "steps": Term(
        label=marked("Steps"),
        says=marked("One step reads one batch of rows, moves the weights against the gradient and adds noise."),
    ),
    "expected_end": Term(
        label=marked("Expected end"),
        says=marked("When the run is done if it goes on as it did so far and as the model's last runs did."),
    ),
    "passes": Term(
        label=marked("Passes"),
        says=marked(
            "The work of a run in readings of the whole dataset: its steps, over the steps that read every row once."
        ),
    ),
    "rows_nulled": Term(
        label=marked("Rows nulled"),
        says=marked("The rows that were replaced by empty ones, and whose keys were destroyed, before this run began."),
    ),
    # Privacy parameters
    "l2": Term(
        label=marked("Regularisation"),
        says=marked("The weight of the l2 penalty: more of it forgets in fewer steps and fits the data less closely."),
    ),
    "noise_scale": Term(
        label=marked("Noise scale"),
        says=marked(
            "The scale of the noise that hides a record: more of it forgets in fewer steps and predicts worse."
        ),
    ),
    "step_size": Term(
        label=marked("Step size"),
        says=marked("How far one step moves the weights along the gradient; it is bounded so that steps contract."),
    ),
    "contraction": Term(
        label=marked("Contraction"),
        says=marked(
            "The factor by which one step shrinks the distance between two models, and with it what is left of "
            "a forgotten record."
        ),
    ),
    "radius": Term(
        label=marked("Radius"),
        says=marked("The ball that weights are projected onto after every step, large enough to hold the minimiser."),
    ),
    "gradient_bound": Term(
        label=marked("Gradient bound (M)"),
        says=marked(
            "The largest norm of the gradient of one record's loss, which limits what one record can do in one step."
        ),
    ),
    "strong_convexity": Term(
        label=marked("Strong convexity"),
        says=marked("The least curvature of the objective, due to the l2 penalty, from which the contraction follows."),
    ),
    "smoothness": Term(
        label=marked("Smoothness"),
        says=marked("The largest curvature of the objective, which bounds the step size."),
    ),
    "learn_steps": Term(
        label=marked("Steps to learn"),
        says=marked(
            "The number of steps from the start to a first version, or to a version learned again from scratch."
        ),
    ),
    "batch_size": Term(
        label=marked("Rows per step"),
        says=marked("The rows that one step reads: fewer cost less per step and predict a little worse."),
    ),
    "cool_down": Term(
        label=marked("Cool-down"),
        says=marked("The last steps of a run, over which the step size falls so that the weights settle."),
    ),
    "class_weights": Term(
        label=marked("Weights of the classes"),
        says=marked("Public factors of the losses of rows by their class, in the order of the classes, the largest 1."),
    ),
    "weight_bound": Term(
        label=marked("Weights of the rows"),
        says=marked(
            "How much the loss of a row counts: a weight of its own, at most this public bound, divided by it."
        ),
    ),
    "second_moment": Term(
        label=marked("Second moment of a batch"),
        says=marked("A public bound on how far the rows of a batch point the same way, checked when they are learned."),
    ),
    "loss_width": Term(
        label=marked("Width of the loss"),
        says=marked("The residual, margin or score at which the loss turns from a curve into a line."),
    ),
    "slots": Term(
        label=marked("Rows"),
        says=marked("The places for rows that the guarantees count with, empty ones among them; it never changes."),
    ),
    "parameters": Term(label=marked("Parameters"), says=marked("The number of weights that are learned.")),
    # Canary tests
    "canary_test": Term(
        label=marked("Last canary test"),
        says=marked(
            "An attack on the run itself: made-up records, the canaries, go through its steps, and how well they are "
            "told apart afterwards proves a lower bound on what is left of one record."
        ),
    ),
    "proved": Term(
        label=marked("Proved, at least"),
        says=marked("The epsilon that the canary test demonstrates: the run leaves at least so much of one record."),
    ),
    "certified": Term(
        label=marked("Certified, at most"),
        says=marked(
            "The epsilon that follows from the mechanism by proof: the run leaves at most so much of one record."
        ),
    ),
    "noise": Term(
        label=marked("Noise"),
        says=marked(
            "Compares the noise that coordinates without rows received with what the mechanism prescribes, in "
            "standard deviations."
        ),
    ),
    "forgetting": Term(
        label=marked("Forgetting"),
        says=marked(
            "Compares where the canaries ended with where steps, contraction and removal should have left them, in "
            "standard deviations."
        ),
    ),
    "schedule": Term(
        label=marked("Schedule"),
        says=marked(
            "Compares the order in which batches were read with the one that was planned, in standard deviations."
        ),
    ),
    # Datasets
    "revision": Term(
        label=marked("Revision"),
        says=marked(
            "The number of batches of erased or added rows so far, by which a version is known to have seen a person "
            "or not."
        ),
    ),
}


def translated() -> dict[str, Term]:
    """Return the terms in the reader's language."""
    return {name: Term(label=gettext(term.label), says=gettext(term.says)) for name, term in TERMS.items()}
