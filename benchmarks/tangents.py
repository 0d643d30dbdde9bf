"""Tangent models of a small public network, on MNIST: what more parameters buy, and cost.

    ./dev bench tangents --data DIR [--rows N] [--device cuda]

The network is a convolution network that has learned scikit-learn's 1,797 digits, enlarged: public data, and another
domain than MNIST. Each model moves other weights of it, at epsilon = 1 and delta = 1/n^1.1; beside it the same model
without noise, learned by the same steps, and *fine-tuning*: ordinary Adam on the same weights of the same network,
which certifies nothing. *Norms* are the Jacobians' of the rows, computed once a run.
"""

import argparse
import hashlib
import io
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from numpy.typing import NDArray
from rich.progress import Progress
from sklearn.datasets import load_digits

from benchmarks import data, page
from lethe.encoding.rows import Features, Labels, encode_vectors
from lethe.proof import accountant
from lethe.proof.accountant import Run
from lethe.proof.mechanism import Mechanism
from lethe.proof.network import Linearisation, PublicNetwork
from lethe.tangents.graph import Graph
from lethe.tangents.model import Tangent
from lethe.tangents.rows import network_inputs, scores
from lethe.theorems import calibration
from worker.langevin import chain, init
from worker.langevin.noise import SystemNoise

EPSILON = 1.0
HEAD, LAST_TWO = ("9.weight", "9.bias"), ("7.weight", "7.bias", "9.weight", "9.bias")
ALL = ("1.weight", "1.bias", "4.weight", "4.bias", *LAST_TWO)
MODELS: tuple[tuple[str, dict[str, Any], float], ...] = (
    ("last layer", {"layers": HEAD}, 5e-4),
    ("last two", {"layers": LAST_TWO}, 5e-4),
    ("all, rank 4", {"layers": ALL, "rank": 4}, 5e-4),
)
Rows = tuple[Features, Labels]


class Silent(SystemNoise):
    """No noise: the same steps, of a model that hides nobody."""

    def normal(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64)

    def rounded_normal(self, size: int, spread: float) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.float64)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--data", type=Path, required=True, help="a folder with mnist.npz")
    asked.add_argument("--rows", type=int, default=10_000)
    asked.add_argument("--device", default="cpu")
    given = asked.parse_args()
    network = pretrained()
    content = exported(network)
    train, test = (rows_of(given.data, part, most) for part, most in (("train", given.rows), ("test", 10_000)))
    results: dict[str, Any] = {
        "machine": page.machine(),
        "device": given.device,
        "rows": given.rows,
        "as_it_is": accuracy_of(network, test),
        "models": [measured(network, content, train, test, given.device, *model) for model in MODELS],
    }
    page.write("tangents", results, page.RESULTS)
    print(printed(results))


def printed(results: dict[str, Any]) -> str:
    heads = ("moved", "weights", "l2", "noise of a score", "passes: learning, first request, later")
    rows = (
        (
            one["moved"],
            one["weights"],
            f"{one['l2']:g}",
            f"{one['noise']:.2f}",
            f"{one['learn_passes']:.3g}, {one['requests'][0]:.2g}, {one['requests'][1]:.2g}",
            f"{one['norms_seconds']:.0f}, {one['pass_seconds']:.1f}",
            *(f"{one[name]:.2f}" for name in ("accuracy", "noiseless", "fine_tuned")),
        )
        for one in results["models"]
    )
    return page.table((*heads, "seconds: norms, a pass", "accuracy, %", "noiseless", "fine-tuning"), rows)


def pretrained() -> torch.nn.Sequential:
    """Ten classes, from 28 x 28 pixels in rows of 784; learned on enlarged digits of 8 x 8."""
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
        torch.nn.Linear(64, 10),
    )
    images, labels = load_digits(return_X_y=True)
    small = torch.from_numpy(images.astype(np.float32) / 16).view(-1, 1, 8, 8)
    large = nn.pad(nn.interpolate(small, size=(20, 20), mode="bilinear"), (4, 4, 4, 4)).flatten(1)
    train_by_adam(network, list(network.parameters()), large, torch.from_numpy(labels), epochs=30)
    return network.eval()


def train_by_adam(
    network: torch.nn.Module, moved: list[torch.nn.Parameter], rows: torch.Tensor, labels: torch.Tensor, *, epochs: int
) -> None:
    optimizer = torch.optim.Adam(moved, lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows)).split(128):
            optimizer.zero_grad()
            nn.cross_entropy(network(rows[batch]), labels[batch]).backward()
            optimizer.step()


def exported(network: torch.nn.Module) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names, axes = ["rows", "scores"], {"rows": {0: "batch"}, "scores": {0: "batch"}}
        settings = {"input_names": names[:1], "output_names": names[1:], "dynamic_axes": axes, "dynamo": False}
        torch.onnx.export(network, (torch.zeros(2, 784),), file, **settings)
    return file.getvalue()


def rows_of(folder: Path, part: str, most: int) -> Rows:
    images, labels = data.mnist(folder, part, range(10))
    chosen = np.random.default_rng(0).permutation(len(images))[:most]
    return encode_vectors(images[chosen]), labels[chosen].astype(np.int32)


def measured(
    network: torch.nn.Sequential,
    content: bytes,
    train: Rows,
    test: Rows,
    device: str,
    name: str,
    moved: dict[str, Any],
    l2: float,
) -> dict[str, Any]:
    linearisation = Linearisation(**moved)
    tangent = Tangent(Graph(content).to(torch.device(device)), linearisation, num_scores=10)
    mechanism = made(content, linearisation, tangent.num_parameters, num_slots=len(train[0]), l2=l2)
    norms = seconds_of_norms(tangent, train[0], device)
    began = time.perf_counter()
    noisy = learn(mechanism, content, train, device, SystemNoise(), f"{name}, {l2:g}")
    passes = mechanism.learn_steps / mechanism.num_batches
    pass_seconds = (time.perf_counter() - began - norms) / passes
    silent = learn(mechanism, content, train, device, Silent(), f"{name}, {l2:g}, without noise")
    return {
        "moved": name,
        "weights": tangent.num_parameters,
        "l2": l2,
        "noise": math.sqrt(mechanism.step_variance / (1 - mechanism.contraction**2)),
        "learn_passes": passes,
        "requests": requests(mechanism),
        "norms_seconds": norms,
        "pass_seconds": pass_seconds,
        "accuracy": accuracy(tangent, noisy, test),
        "noiseless": accuracy(tangent, silent, test),
        "fine_tuned": fine_tuned(network, linearisation, train, test),
    }


def made(content: bytes, linearisation: Linearisation, num_parameters: int, *, num_slots: int, l2: float) -> Mechanism:
    digest = hashlib.sha256(content).hexdigest()
    return calibration.mechanism_for(
        num_slots=num_slots,
        num_classes=10,
        epsilon=EPSILON,
        delta=num_slots**-1.1,
        l2=l2,
        num_parameters=num_parameters,
        network=PublicNetwork(sha256=digest, licence="CC0-1.0", opset=20, linearisation=linearisation),
    )


def requests(mechanism: Mechanism) -> list[float]:
    """Passes over the rows that the first request takes, and the eighth after seven others."""
    delta, passes = mechanism.num_slots**-1.1, []
    runs = [Run(steps=mechanism.learn_steps)]
    for _ in range(8):
        chain_so_far = accountant.replay(mechanism, runs)
        steps = calibration.least_steps(chain_so_far, records=1, epsilon=EPSILON, delta=delta, at_most=10**6)
        passes.append(steps / mechanism.num_batches)
        runs.append(Run(steps=steps, records=1))
    return [passes[0], passes[-1]]


def seconds_of_norms(tangent: Tangent, features: Features, device: str) -> float:
    """Seconds that the norms of all rows take, by those of the first."""
    some = features[: min(1000, len(features))]
    rows = torch.from_numpy(network_inputs(some)).to(device)
    tangent.scales(rows[:10])
    began = time.perf_counter()
    tangent.scales(rows).cpu()
    return (time.perf_counter() - began) * len(features) / len(some)


def learn(
    mechanism: Mechanism, content: bytes, rows: Rows, device: str, noise: SystemNoise, name: str
) -> NDArray[np.float64]:
    with Progress() as bar:
        task = bar.add_task(name, total=mechanism.learn_steps)
        return chain.run(
            mechanism=mechanism,
            features=rows[0],
            labels=rows[1],
            initial=init.origin_of(mechanism, rows[0].shape[1]),
            steps=mechanism.learn_steps,
            noise=noise,
            on_progress=lambda steps_done: bar.update(task, completed=steps_done),
            device=device,
            network=content,
        ).parameters


def accuracy(tangent: Tangent, parameters: NDArray[np.float64], rows: Rows) -> float:
    found = scores(tangent, parameters, rows[0])
    return 100 * float((found.argmax(axis=1) == rows[1]).mean())


def accuracy_of(network: torch.nn.Module, rows: Rows) -> float:
    with torch.no_grad():
        found = network(torch.from_numpy(network_inputs(rows[0]))).argmax(1).numpy()
    return 100 * float((found == rows[1]).mean())


def fine_tuned(network: torch.nn.Sequential, linearisation: Linearisation, train: Rows, test: Rows) -> float:
    """The accuracy of the network whose same layers ordinary training has moved, all of each."""
    before = {name: value.clone() for name, value in network.state_dict().items()}
    torch.manual_seed(1)
    moved = [value for name, value in network.named_parameters() if name in linearisation.layers]
    rows = torch.from_numpy(network_inputs(train[0]))
    train_by_adam(network, moved, rows, torch.from_numpy(train[1]).long(), epochs=10)
    found = accuracy_of(network, test)
    network.load_state_dict(before)
    return found


if __name__ == "__main__":
    main()
