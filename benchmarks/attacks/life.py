"""One life of a model of ours: rows that requests edit, and the production chain that runs after each of them."""

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.origin import origin
from lethe.proof import calibration
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain, engines
from worker.langevin.noise import SystemNoise

Version = NDArray[np.float64]
"""Published weights  # (d,)"""


class Life:
    """A model of two classes from its first version on; every run takes fresh noise from the operating system."""

    def __init__(
        self, mechanism: Mechanism, features: NDArray[np.float32], labels: NDArray[np.int32], version: Version
    ) -> None:
        self.mechanism, self.features, self.labels, self.version = mechanism, features, labels, version
        self.runs: tuple[int, ...] = ()
        """Steps of every run so far, as they were counted."""

    @classmethod
    def learned(cls, mechanism: Mechanism, features: NDArray[np.float32], labels: NDArray[np.int32]) -> Self:
        life = cls(mechanism, features, labels, origin(num_classes=2, num_features=features.shape[1])[0])
        life.publish(mechanism.learn_steps)
        return life

    def branch(self) -> Self:
        """The same model so far, to go on in another way."""
        other = type(self)(self.mechanism, self.features.copy(), self.labels.copy(), self.version)
        other.runs = self.runs
        return other

    def null(self, rows: slice | list[int] | NDArray[np.int64]) -> None:
        self.features[rows] = 0

    def overwrite(self, rows: slice, row: NDArray[np.float64], label: int) -> None:
        self.features[rows], self.labels[rows] = row, label

    def publish(self, steps: int) -> Version:
        """The next version, a run of so many steps from the last."""
        ran = chain.run(
            features=self.features,
            labels=self.labels,
            mechanism=self.mechanism,
            initial=self.version[None],
            first_step=sum(self.runs),
            steps=steps,
            noise=SystemNoise(),
            on_progress=_unwatched,
            backend=engines.Backend(threads=1),
        )
        self.version, self.runs = ran.parameters[0], (*self.runs, ran.steps)
        return self.version


def mechanism_of(*, people: int, columns: int, l2: float) -> Mechanism:
    """As the service makes it, for (1, 1/n^1.1), but for `l2`, and for steps that read all rows: whoever plays here
    knows what the next version tends to, and any one step of the way there."""
    return calibration.mechanism_for(
        calibration.ModelSettings(epsilon=1.0, delta=people**-1.1, l2=l2, batch_size=people),
        num_slots=people,
        num_classes=2,
        num_parameters=columns,
    )


def delta_of(mechanism: Mechanism) -> float:
    return float(mechanism.num_slots**-1.1)


_unwatched: Callable[[int], None] = lambda steps_done: None  # noqa: E731
