"""Ten digits of MNIST, told by features of a frozen encoder that learned from nobody, and forgotten one by one.

    ./dev bench backbone --data DIR      # DIR holds mnist.npz; with --quick, 3,000 rows, to build/evidence

The encoder is that of examples/images: wavelets by formula. All 60,000 rows, epsilon = 1 and delta = 1/n^1.1, the
defaults but for l2 and the second moment, which are stated. Beside each model the minimiser of the same objective, to
which its steps come without noise, and scikit-learn's logistic regression as it comes; neither forgets.
"""

import argparse
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from rich.progress import Progress
from sklearn.linear_model import LogisticRegression

from benchmarks import data, page
from benchmarks.origin import origin
from benchmarks.vectors import encode_vectors
from lethe.encoding.rows import Features, Labels
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism
from worker.langevin import chain
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

EPSILON = 1.0
ENCODER = page.ROOT / "examples" / "images" / "encoder.py"
SIZE, STRIDE, BLOCK = 28, 4, 1000
SECOND_MOMENT = 0.4
"""A public bound that each batch is held to."""
MODELS = {"l2 below the floor": 1e-4, "the default l2": None}
REQUESTS = 8
Row = dict[str, Any]
Rows = tuple[Features, Labels]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with mnist.npz")
    parser.add_argument("--quick", action="store_true", help="3,000 rows only")
    asked = parser.parse_args()
    train, test = (rows_of(asked.data, part, 3000 if asked.quick else None) for part in ("train", "test"))
    results: Row = {
        "machine": page.machine(),
        "rows": len(train[0]),
        "features": train[0].shape[1] - 1,
        "second_moment": SECOND_MOMENT,
        "models": [],
    }
    for name, l2 in MODELS.items():
        results["models"].append(measured(name, l2, train, test))
        print(printed(results), flush=True)
    results["plain"] = fitted(1.0, train, test)
    page.write("backbone", results, page.SCRATCH if asked.quick else page.RESULTS)


def rows_of(folder: Path, part: str, most: int | None) -> Rows:
    """What the encoder makes of the images, as the service stores it."""
    images, labels = data.mnist(folder, part, range(10))
    session = onnxruntime.InferenceSession(encoder().waves(SIZE, STRIDE), providers=["CPUExecutionProvider"])
    found = []
    for start in range(0, len(images[:most]), BLOCK):
        [features] = session.run(None, {"x": images[:most][start : start + BLOCK].astype(np.float32)})
        found.append(encode_vectors(features))
    return np.concatenate(found), labels[:most].astype(np.int32)


def encoder() -> Any:
    """The module of the example, which is no package."""
    spec = importlib.util.spec_from_file_location("encoder", ENCODER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(name: str, l2: float | None, train: Rows, test: Rows) -> Row:
    mechanism = made(len(train[0]), l2=l2)
    start = origin(num_classes=10, num_features=train[0].shape[1])
    planned_passes = planned(mechanism)
    parameters = learned(mechanism, train, start, name)
    return {
        "name": name,
        **planned_passes,
        "accuracy": 100 * float(of_classes(parameters, [test], 10)["accuracy"]),
        "noiseless": fitted(1 / (mechanism.l2 * mechanism.num_slots), train, test),
    }


def made(num_slots: int, *, l2: float | None, second_moment: float | None = SECOND_MOMENT) -> Mechanism:
    """The service's mechanism for the target."""
    settings = calibration.ModelSettings(epsilon=EPSILON, delta=num_slots**-1.1, l2=l2, second_moment=second_moment)
    return calibration.mechanism_for(settings, num_slots=num_slots, num_classes=10)


def planned(mechanism: Mechanism) -> Row:
    """Steps of learning and of one request after another, by the service's accountant."""
    now = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    delta, steps = mechanism.num_slots**-1.1, []
    for _ in range(REQUESTS):
        steps.append(calibration.least_steps(now, records=1, epsilon=EPSILON, delta=delta, at_most=10**7))
        now = accountant.advance(now, Run(steps=steps[-1], records=1))
    return {
        "l2": mechanism.l2,
        "noise": math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2)),
        "num_batches": mechanism.num_batches,
        "learn_steps": mechanism.learn_steps,
        "request_steps": steps,
    }


def learned(mechanism: Mechanism, rows: Rows, initial: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """The parameters of the service's own chain, with noise of the operating system."""
    with Progress() as bar:
        task = bar.add_task(name, total=mechanism.learn_steps)
        ran = chain.run(
            mechanism=mechanism,
            features=rows[0],
            labels=rows[1],
            initial=initial,
            steps=mechanism.learn_steps,
            noise=SystemNoise(),
            on_progress=lambda steps_done: bar.update(task, completed=steps_done),
        )
    return ran.parameters


def fitted(penalty: float, train: Rows, test: Rows) -> float:
    """The accuracy of scikit-learn's logistic regression with `penalty` for C."""
    regression = LogisticRegression(C=penalty, fit_intercept=False, max_iter=2000, tol=1e-5)
    return 100 * float(regression.fit(*train).score(*test))


def printed(results: Row) -> str:
    heads = ("", "l2", "noise of a score", "accuracy, %", "without noise", "passes to learn")
    rows = (
        (
            one["name"],
            f"{one['l2']:g}",
            f"{one['noise']:.2f}",
            f"{one['accuracy']:.2f}",
            f"{one['noiseless']:.2f}",
            f"{one['learn_steps'] / one['num_batches']:.3g}",
            f"{one['request_steps'][0] / one['num_batches']:.2g}, {one['request_steps'][-1] / one['num_batches']:.2g}",
        )
        for one in results["models"]
    )
    return page.table((*heads, "passes of requests 1, 8"), rows)


if __name__ == "__main__":
    main()
