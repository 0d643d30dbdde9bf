"""Technical terms of the pages: the words a number stands under, and one sentence that explains it.

A template writes `ui.term("epsilon")`; every page has the sentences once, at its end, each opened by a button.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """`label`: the words on the page, unless it says it otherwise; `says`: one sentence."""

    label: str
    says: str


TERMS: Mapping[str, Term] = {
    # what is guaranteed
    "epsilon": Term(
        label="ε",
        says="Epsilon bounds how far what is published may depend on somebody: at 0 an attacker learns nothing of "
        "them and is right as often as a coin, and the larger it is, the more often the attacker may be right.",
    ),
    "delta": Term(
        label="δ",
        says="Delta bounds the probability that the bound by epsilon leaves out, and has to stay below one over the "
        "number of rows.",
    ),
    "mu": Term(
        label="μ",
        says="Mu is the distance between the two worlds an attacker has to tell apart, in standard deviations of the "
        "noise, from which epsilon follows at every delta.",
    ),
    "attacker": Term(
        label="Best attacker right",
        says="The largest share of cases in which an attacker who knows everything but the noise can say which of two "
        "equally likely worlds is real; a coin is right in 50 %.",
    ),
    "target": Term(
        label="Target",
        says="The epsilon and delta that every request has to reach before its version may be published.",
    ),
    "forgotten_epsilon": Term(
        label="ε of the forgotten",
        says="The bound on how far the live version differs from one learned without everybody it was made to forget; "
        "it says nothing about people who still wait.",
    ),
    "still_in_it": Term(
        label="Still in it",
        says="People who asked to be forgotten and whose rows no run has taken up yet, so that no guarantee is about "
        "them.",
    ),
    "notion": Term(
        label="Guarantee",
        says="Unlearning is about everybody forgotten so far together, deletion about one person, adaptive about "
        "somebody who keeps every version, and release about what one version adds to the one before.",
    ),
    "reference": Term(
        label="Compares",
        says="The other world of the guarantee: what would have been published had things gone as it says.",
    ),
    "influence": Term(
        label="Influence",
        says="The largest distance by which the records that were forgotten can have moved the weights.",
    ),
    "presence": Term(
        label="Of one",
        says="The largest distance by which one record that is still in the data can have moved the weights.",
    ),
    "share_of_budget": Term(
        label="Share of μ²",
        says="The part of what one record has given away so far that is due to this model; squares of mu add up over "
        "versions.",
    ),
    "releases_left": Term(
        label="Fit the budget",
        says="How many more versions, each forgetting one record, can be published before the budget is spent.",
    ),
    "largest_batch": Term(
        label="Largest batch cheaper than retraining",
        says="The number of records that can be forgotten in one run with fewer steps than learning again from "
        "scratch takes.",
    ),
    # what is owed by when
    "median_days": Term(
        label="Median",
        says="Of the requests completed in these weeks, half took no more whole days from when they were submitted.",
    ),
    "p90_days": Term(
        label="90th percentile",
        says="Of the requests completed in these weeks, nine in ten took no more whole days from when they were "
        "submitted.",
    ),
    "share_in_time": Term(
        label="In time",
        says="The share of the requests completed in these weeks that were completed before their deadline, as "
        "extensions and pauses had moved it.",
    ),
    # what a run takes
    "steps": Term(
        label="Steps",
        says="One step reads one batch of rows, moves the weights against the gradient and adds noise.",
    ),
    "expected_end": Term(
        label="Expected end",
        says="When the run is done if it goes on as it did so far and as the model's last runs did.",
    ),
    "passes": Term(
        label="Passes",
        says="The work of a run in readings of the whole dataset: its steps, over the steps that read every row once.",
    ),
    "rows_nulled": Term(
        label="Rows nulled",
        says="The rows that were replaced by empty ones, and whose keys were destroyed, before this run began.",
    ),
    # privacy parameters
    "l2": Term(
        label="Regularisation",
        says="The weight of the l2 penalty: more of it forgets in fewer steps and fits the data less closely.",
    ),
    "noise_scale": Term(
        label="Noise scale",
        says="The scale of the noise that hides a record: more of it forgets in fewer steps and predicts worse.",
    ),
    "step_size": Term(
        label="Step size",
        says="How far one step moves the weights along the gradient; it is bounded so that steps contract.",
    ),
    "contraction": Term(
        label="Contraction",
        says="The factor by which one step shrinks the distance between two models, and with it what is left of "
        "a forgotten record.",
    ),
    "radius": Term(
        label="Radius",
        says="The ball that weights are projected onto after every step, large enough to hold the minimiser.",
    ),
    "gradient_bound": Term(
        label="Gradient bound (M)",
        says="The largest norm of the gradient of one record's loss, which limits what one record can do in one step.",
    ),
    "strong_convexity": Term(
        label="Strong convexity",
        says="The least curvature of the objective, due to the l2 penalty, from which the contraction follows.",
    ),
    "smoothness": Term(
        label="Smoothness",
        says="The largest curvature of the objective, which bounds the step size.",
    ),
    "learn_steps": Term(
        label="Steps to learn",
        says="The number of steps from the start to a first version, or to a version learned again from scratch.",
    ),
    "batch_size": Term(
        label="Rows per step",
        says="The rows that one step reads: fewer cost less per step and predict a little worse.",
    ),
    "cool_down": Term(
        label="Cool-down",
        says="The last steps of a run, over which the step size falls so that the weights settle.",
    ),
    "class_weights": Term(
        label="Weights of the classes",
        says="Public factors of the losses of rows by their class, in the order of the classes, the largest 1.",
    ),
    "weight_bound": Term(
        label="Weights of the rows",
        says="How much the loss of a row counts: a weight of its own, at most this public bound, divided by it.",
    ),
    "second_moment": Term(
        label="Second moment of a batch",
        says="A public bound on how far the rows of a batch point the same way, checked when they are learned.",
    ),
    "loss_width": Term(
        label="Width of the loss",
        says="The residual, margin or score at which the loss turns from a curve into a line.",
    ),
    "slots": Term(
        label="Rows",
        says="The places for rows that the guarantees count with, empty ones among them; it never changes.",
    ),
    "parameters": Term(label="Parameters", says="The number of weights that are learned."),
    # canary tests
    "canary_test": Term(
        label="Last canary test",
        says="An attack on the run itself: made-up records, the canaries, go through its steps, and how well they are "
        "told apart afterwards proves a lower bound on what is left of one record.",
    ),
    "proved": Term(
        label="Proved, at least",
        says="The epsilon that the canary test demonstrates: the run leaves at least so much of one record.",
    ),
    "certified": Term(
        label="Certified, at most",
        says="The epsilon that follows from the mechanism by proof: the run leaves at most so much of one record.",
    ),
    "noise": Term(
        label="Noise",
        says="Compares the noise that coordinates without rows received with what the mechanism prescribes, in "
        "standard deviations.",
    ),
    "forgetting": Term(
        label="Forgetting",
        says="Compares where the canaries ended with where steps, contraction and removal should have left them, in "
        "standard deviations.",
    ),
    "schedule": Term(
        label="Schedule",
        says="Compares the order in which batches were read with the one that was planned, in standard deviations.",
    ),
    # datasets
    "revision": Term(
        label="Revision",
        says="The number of batches of erased or added rows so far, by which a version is known to have seen a person "
        "or not.",
    ),
}
