"""The mechanism of a model as it is answered: what its guarantees follow from."""

from pydantic import Field

from lethe.contract.fields import Answer
from lethe.contract.networks import PublicNetworkOut


class MechanismOut(Answer):
    objective: str
    num_slots: int
    num_classes: int = Field(description="1: a target.")
    loss_width: float | None = Field(
        default=None, description="Where the objective has one.", exclude_if=lambda width: width is None
    )
    network: PublicNetworkOut | None = Field(
        default=None,
        description="The public network whose features the rows are, or whose tangent the model is.",
        exclude_if=lambda network: network is None,
    )
    second_moment: float | None = Field(
        default=None, description="Where one was stated.", exclude_if=lambda bound: bound is None
    )
    class_weights: list[float] | None = Field(
        default=None,
        description="In the order of the classes, the largest 1; where any were stated.",
        exclude_if=lambda weights: weights is None,
    )
    weight_bound: float | None = Field(
        default=None,
        description="Of the rows' own weights: a row counts its weight over this bound. Where rows have weights.",
        exclude_if=lambda bound: bound is None,
    )
    l2: float
    strong_convexity: float
    smoothness: float
    gradient_bound: float
    step_size: float
    contraction: float
    noise_scale: float
    step_variance: float
    radius: float
    grid: float
    num_parameters: int
    learn_steps: int
    batch_size: int
    num_batches: int
    cool_down: int
