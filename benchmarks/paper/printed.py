"""What Chien, Wang, Chen and Li ("Langevin unlearning", NeurIPS 2024) print, and what their public code stores.

Only numbers that the paper prints as text, or that its authors' code (github.com/Graph-COM/Langevin_unlearning) states
or that were read from the arrays it stores. What the paper only draws is None.
"""

from dataclasses import dataclass
from typing import Any

EPSILONS = (0.05, 0.1, 0.5, 1.0, 2.0, 5.0)
"""Targets of Figure 3a and of Tables 2 and 3."""
BATCHES = (5, 10, 20)
"""Records per request in Figure 3b, a hundred in all."""
REMOVED = 100
SIGMA = 0.03
"""Noise of Figures 3b, 4 and 5."""
SIGMAS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Noise of Figure 3c, where 100 records leave at once."""
FIGURE_4 = {"epsilons": (0.1, 0.5, 1.0, 2.0, 5.0), "removed": (1, 50, 100)}
FIGURE_5 = {"epsilons": (0.5, 1.0, 2.0), "removed": (1, 10, 50, 100, 500, 1000)}
RETRAINING_STEPS = 10_000
GRID = 10
"""Their search for the steps of Figures 3c, 4 and 5 tries 1, 11, 21, ..."""
START_MEAN = 1000.0
"""Their chains start at N(1000, 1) in every coordinate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One dataset of the paper, with the constants of its Table 1: l2 = 1e-6 n, delta = 1/n, step size 1/L.

    `loss_smoothness`: L without l2. `measured`: the largest eigenvalue of X'X/n. Stored numbers for two classes were
    made with L = measured/4 + l2.
    """

    name: str
    num_rows: int
    num_features: int
    num_classes: int
    gradient_bound: float
    loss_smoothness: float
    measured: float | None
    l2_by_row: float = 1e-6

    @property
    def l2(self) -> float:
        return self.l2_by_row * self.num_rows

    @property
    def smoothness(self) -> float:
        return self.loss_smoothness + self.l2

    @property
    def delta(self) -> float:
        return 1 / self.num_rows

    @property
    def measured_smoothness(self) -> float:
        return self.smoothness if self.measured is None else self.measured / 4 + self.l2

    def asked(self, *, measured: bool = False, **more: Any) -> dict[str, Any]:
        """What the calculator's bounds for strongly convex problems ask for."""
        smoothness = self.measured_smoothness if measured else self.smoothness
        constants = {"Mlip": self.gradient_bound, "m": self.l2, "L": smoothness, "n": self.num_rows}
        return constants | {"delta": self.delta} | more


MNIST = Problem(
    name="MNIST, 3 against 8",
    num_rows=11_982,
    num_features=784,
    num_classes=2,
    gradient_bound=1.0,
    loss_smoothness=0.25,
    measured=0.730874,
)
CIFAR_TWO = Problem(
    name="CIFAR-10, two classes",
    num_rows=10_000,
    num_features=512,
    num_classes=2,
    gradient_bound=1.0,
    loss_smoothness=0.25,
    measured=0.692438,
)
CIFAR_TEN = Problem(
    name="CIFAR-10, ten classes",
    num_rows=50_000,
    num_features=512,
    num_classes=10,
    gradient_bound=2.0,
    loss_smoothness=1.0,
    measured=None,
)
PROBLEMS = (MNIST, CIFAR_TWO, CIFAR_TEN)

TABLE_2 = {
    (1, 0.05): 36.8573,
    (1, 0.1): 18.4620,
    (1, 1.0): 1.8890,
    (2, 0.1): 8.6229,
    (2, 1.0): 0.8864,
    (5, 1.0): 0.2908,
}
"""Noise of Descent-to-Delete on MNIST by steps and epsilon: those of its cells that are compared here."""
TABLE_3 = {
    MNIST.name: (0.1872, 0.094, 0.019, 0.0096, 0.0049, 0.0021),
    CIFAR_TWO.name: (0.2431, 0.122, 0.025, 0.0125, 0.0064, 0.0028),
    CIFAR_TEN.name: (0.0473, 0.0238, 0.0049, 0.0025, 0.0012, 0.0005),
}
"""Least noise for one record in one step, by epsilon."""
TABLE_3_STORED = {(CIFAR_TEN.name, 2.0): 0.00125, (CIFAR_TEN.name, 5.0): 0.00052}
"""Where the code has more digits than the table."""
NOISE_MISTAKES = {(2, 0.5): 0.00018914795795776367, (5, 0.5): 0.00018869019428894046}
"""Noise that the code uses on MNIST for two and for five steps, by epsilon, a hundred times too little."""
FIGURE_3B: dict[str, tuple[int, ...] | None] = {
    MNIST.name: (19_717, 8_739, 5_058),
    CIFAR_TWO.name: None,
    CIFAR_TEN.name: (20_462, 7_478, 3_954),
}
"""Steps for a hundred removals in batches of 5, 10, 20, as stored."""
FIGURE_3B_D2D = {MNIST.name: 9_118, CIFAR_TWO.name: 10_098, CIFAR_TEN.name: 11_884}
FIGURE_3C_EPSILON_0 = {0.05: 100.0}
"""The text says "about 100" of the epsilon before unlearning at the least noise."""
FIGURE_4_STORED = {(100, 0.1): 21_281}
"""Steps by records and epsilon, run but not drawn; what is drawn has no numbers in the text."""
RECORDED_ACCURACY = {"noiseless": 0.9108, "sigma 0.03": 0.8996}
"""Of their arrays on MNIST, means of a hundred runs (standard deviations 0 and 0.0143)."""
