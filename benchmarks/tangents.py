"""Tangent models of small public networks: what moving a million weights buys, and what it costs.

    ./dev bench tangents                # scikit-learn's digits
    ./dev bench tangents --data DIR     # and MNIST, from DIR/mnist.npz: what the page quotes

Each network is public by construction: a perceptron of 64-1024-1024-10 that has learned the first hundred digits of a
random order, none of which is learned from or measured on later, and a small convolution network that has learned all
1,797, enlarged, before it sees MNIST. Each model moves some weights of it to first order, as shipped (all defaults) at
epsilon = 1 and delta = 1/n^1.1. Beside it the same steps without noise; the same layers *fine-tuned* by Adam, which
hides nobody; and the linear model on the same rows. Then one person is forgotten: the request that is timed is run.
*Alone* leaves the scores of the network as it is out of the model (`offset`).
"""

import argparse
import hashlib
import io
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from numpy.typing import NDArray

from benchmarks import data, page
from benchmarks.vectors import encode_vectors
from lethe.encoding.rows import Features, Labels
from lethe.features.insight import margins
from lethe.features.networks.tangents.graph import Graph
from lethe.features.networks.tangents.model import Tangent, network_inputs
from lethe.proof import accountant, calibration
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import Linearisation, PublicNetwork
from worker.features.networks.engines import scored
from worker.langevin import chain, engines, init
from worker.langevin.evaluate import of_classes
from worker.langevin.noise import SystemNoise

EPSILON, CLASSES, REQUESTS, EPOCHS = 1.0, 10, 8, 30
PUBLIC, LEARNED = 100, 1000
"""Digits that the perceptron learned from, and that models learn from; 697 others are measured on."""
MNIST_LEARNED, MNIST_TESTED = 4000, 4000
Rows = tuple[Features, Labels]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`models`: what each of them moves."""

    name: str
    network: torch.nn.Sequential
    train: Rows
    test: Rows
    models: dict[str, Linearisation]


class Silent(SystemNoise):
    """No noise: the same steps, of a model that hides nobody."""

    def normal(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with mnist.npz")
    asked = parser.parse_args()
    folder = page.RESULTS if asked.data else page.SCRATCH
    results: Row = {"machine": page.machine(), "public": PUBLIC, "problems": []}
    for problem in [digits(), *([mnist(asked.data)] if asked.data else [])]:
        results["problems"].append(compared(problem))
        print(printed(results)[problem.name], flush=True)
    page.write("tangents", results, folder)


def digits(width: int = 1024) -> Problem:
    """The perceptron and the digits that it has not seen."""
    images, labels = data.digits()
    order = np.random.default_rng(0).permutation(len(images))
    public, train, test = np.split(order, [PUBLIC, PUBLIC + LEARNED])
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )
    train_by_adam(network, list(network.parameters()), encoded(images, labels, public))
    return Problem(
        name="digits",
        network=network,
        train=encoded(images, labels, train),
        test=encoded(images, labels, test),
        models={"last layer": moved("4"), "last two, alone": moved("2", "4", offset=False)},
    )


def mnist(folder: Path) -> Problem:
    """The convolution network, and the first of a random order of each part of MNIST."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 28, 28)),
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.Sequential(torch.nn.ReLU(), torch.nn.MaxPool2d(2)),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 49, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, CLASSES),
    )
    images, labels = data.digits()
    small = torch.from_numpy(images.astype(np.float32)).view(-1, 1, 8, 8)
    large = nn.pad(nn.interpolate(small, size=(20, 20), mode="bilinear"), (4, 4, 4, 4)).flatten(1)
    train_by_adam(network, list(network.parameters()), encoded(large.numpy(), labels, np.arange(len(labels))))
    parts = []
    for part, most in (("train", MNIST_LEARNED), ("test", MNIST_TESTED)):
        images, labels = data.mnist(folder, part, range(CLASSES))
        parts.append(encoded(images, labels, np.random.default_rng(0).permutation(len(images))[:most]))
    return Problem(
        name="mnist",
        network=network,
        train=parts[0],
        test=parts[1],
        models={"last two": moved("7", "9"), "last two, alone": moved("7", "9", offset=False)},
    )


def moved(*layers: str, offset: bool = True) -> Linearisation:
    """Weights and biases of these layers; *alone* is without the `offset`, the scores of the network as it is."""
    names = tuple(f"{layer}.{part}" for layer in layers for part in ("weight", "bias"))
    return Linearisation(layers=names, offset=offset)


def encoded(images: NDArray[Any], labels: NDArray[Any], chosen: NDArray[Any]) -> Rows:
    return encode_vectors(images[chosen]), labels[chosen].astype(np.int32)


def train_by_adam(network: torch.nn.Module, moved: list[torch.nn.Parameter], rows: Rows) -> None:
    optimizer = torch.optim.Adam(moved, lr=1e-3)
    inputs, labels = torch.from_numpy(network_inputs(rows[0])), torch.from_numpy(rows[1]).long()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(inputs)).split(128):
            optimizer.zero_grad()
            nn.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimizer.step()


def compared(problem: Problem) -> Row:
    """The linear model, and each that moves some layers."""
    content = exported(problem.network, problem.train[0].shape[1] - 1)
    return {
        "name": problem.name,
        "rows": len(problem.train[0]),
        "tested": len(problem.test[0]),
        "weights": sum(each.numel() for each in problem.network.parameters()),
        "as_it_is": accuracy_of(problem.network, problem.test),
        "models": [
            {"moved": "nothing: linear"} | measured(problem, None, b""),
            *({"moved": name} | measured(problem, chosen, content) for name, chosen in problem.models.items()),
        ],
    }


def measured(problem: Problem, chosen: Linearisation | None, content: bytes) -> Row:
    mechanism = made(content, chosen, num_slots=len(problem.train[0]), num_features=problem.train[0].shape[1])
    plan = planned(mechanism)
    origin = init.origin_of(mechanism, problem.train[0].shape[1])
    noisy, learn_seconds = ran(mechanism, content, problem.train, origin, SystemNoise())
    silent, _ = ran(mechanism, content, problem.train, origin, Silent())
    features, labels = problem.train[0].copy(), problem.train[1].copy()
    features[0], labels[0] = 0, 0  # who is forgotten
    first = {"first_step": mechanism.learn_steps, "steps": plan["request_steps"][0]}
    after, request_seconds = ran(mechanism, content, (features, labels), noisy, SystemNoise(), **first)
    tuned, tuning_seconds = fine_tuned(problem, chosen.layers) if chosen else (None, None)
    right = {
        name: accuracy(mechanism, content, parameters, problem.test)
        for name, parameters in (("accuracy", noisy), ("noiseless", silent), ("accuracy_after", after))
    }
    return {
        **plan,
        **right,
        "fine_tuned": tuned,
        "learn_seconds": learn_seconds,
        "request_seconds": request_seconds,
        "tuning_seconds": tuning_seconds,
    }


def made(content: bytes, chosen: Linearisation | None, *, num_slots: int, num_features: int) -> Mechanism:
    """The service's mechanism, all by default; of a linear model if nothing is `chosen`."""
    settings = calibration.ModelSettings(epsilon=EPSILON, delta=num_slots**-1.1)
    data: Row = {"num_slots": num_slots, "num_classes": CLASSES}
    if chosen is None:
        return calibration.mechanism_for(settings, **data, num_parameters=CLASSES * num_features)
    number = Tangent(Graph(content), chosen, num_scores=CLASSES).num_parameters
    digest = hashlib.sha256(content).hexdigest()
    network = PublicNetwork(sha256=digest, licence="CC0-1.0", opset=20, linearisation=chosen)
    return calibration.mechanism_for(settings, **data, num_parameters=number, network=network)


def planned(mechanism: Mechanism) -> Row:
    """Steps of learning and of one request after another by the service's accountant, and what the first certifies."""
    now = accountant.replay(mechanism, [Run(steps=mechanism.learn_steps)])
    delta, steps, certified = mechanism.num_slots**-1.1, [], []
    for _ in range(REQUESTS):
        steps.append(calibration.least_steps(now, records=1, epsilon=EPSILON, delta=delta, at_most=10**7))
        certified.append(margins.least_epsilon(now, records=1, steps=steps[-1], delta=delta))
        now = accountant.advance(now, Run(steps=steps[-1], records=1))
    return {
        "parameters": mechanism.num_parameters,
        "l2": mechanism.l2,
        "noise": math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2)),
        "num_batches": mechanism.num_batches,
        "learn_steps": mechanism.learn_steps,
        "request_steps": steps,
        "epsilon": max(certified),
    }


def ran(
    mechanism: Mechanism,
    content: bytes,
    rows: Rows,
    initial: NDArray[np.float64],
    noise: SystemNoise,
    *,
    first_step: int = 0,
    steps: int | None = None,
) -> tuple[NDArray[np.float64], float]:
    """The parameters of a run of the service's own chain, and its seconds."""
    began = time.perf_counter()
    found = chain.run(
        mechanism=mechanism,
        features=rows[0],
        labels=rows[1],
        initial=initial,
        first_step=first_step,
        steps=mechanism.learn_steps if steps is None else steps,
        noise=noise,
        on_progress=lambda steps_done: None,
        backend=engines.Backend(network=content or None),
    )
    return found.parameters, time.perf_counter() - began


def accuracy(mechanism: Mechanism, content: bytes, parameters: NDArray[np.float64], rows: Rows) -> float:
    if not mechanism.is_tangent:
        return 100 * float(of_classes(parameters, [rows], CLASSES)["accuracy"])
    [(found, labels)] = scored(mechanism, content, parameters, [rows])
    return 100 * float((found.argmax(axis=1) == labels).mean())


def accuracy_of(network: torch.nn.Module, rows: Rows) -> float:
    with torch.no_grad():
        found = network(torch.from_numpy(network_inputs(rows[0]))).argmax(1).numpy()
    return 100 * float((found == rows[1]).mean())


def fine_tuned(problem: Problem, layers: tuple[str, ...]) -> tuple[float, float]:
    """The accuracy of the network whose same layers ordinary training has moved, and its seconds."""
    network = problem.network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(1)
    began = time.perf_counter()
    train_by_adam(network, [value for name, value in network.named_parameters() if name in layers], problem.train)
    found, seconds = accuracy_of(network, problem.test), time.perf_counter() - began
    network.load_state_dict(before)
    return found, seconds


def exported(network: torch.nn.Module, num_features: int) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names, axes = ["rows", "scores"], {"rows": {0: "batch"}, "scores": {0: "batch"}}
        settings = {"input_names": names[:1], "output_names": names[1:], "dynamic_axes": axes, "dynamo": False}
        torch.onnx.export(network, (torch.zeros(2, num_features),), file, **settings)
    return file.getvalue()


def printed(results: Row) -> dict[str, str]:
    """A table of each problem."""
    heads = (
        "moved",
        "parameters",
        "accuracy, %",
        "without noise",
        "fine-tuned",
        "noise of a score",
        "certified epsilon",
    )
    passes, seconds = "passes: learning, requests 1, 8", "seconds: learning, request 1, fine-tuning"
    return {
        problem["name"]: page.table((*heads, passes, seconds), [_cells(one) for one in problem["models"]])
        for problem in results["problems"]
    }


def _cells(one: Row) -> tuple[Any, ...]:
    batches = one["num_batches"]
    tuning = one["tuning_seconds"]
    return (
        one["moved"],
        one["parameters"],
        f"{one['accuracy']:.2f}",
        f"{one['noiseless']:.2f}",
        None if one["fine_tuned"] is None else f"{one['fine_tuned']:.2f}",
        f"{one['noise']:.2f}",
        f"{one['epsilon']:.3f}",
        ", ".join(
            f"{n / batches:.3g}" for n in (one["learn_steps"], one["request_steps"][0], one["request_steps"][-1])
        ),
        ", ".join("-" if n is None else f"{n:.2g}" for n in (one["learn_seconds"], one["request_seconds"], tuning)),
    )


if __name__ == "__main__":
    main()
