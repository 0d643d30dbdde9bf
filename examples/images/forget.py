"""A model on features of a frozen network that forgets a person, on the digits that scikit-learn brings.

Registers the encoder of `encoder.py`, which learned from nobody, learns ten digits from what it makes of images,
forgets the writer of one, and verifies the certificate. Needs a service: `./dev up`, and then
`.venv/bin/python examples/images/forget.py`.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import encoder
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from lethe import Client, verification
from lethe.contract.models import ModelOut
from lethe.contract.runs import RunOut
from lethe.contract.sets import RunKind

SIZE, STRIDE = 8, 2
PERSON = "writer-0042"
HELD_OUT = 4  # each fourth image


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:8000")
    arguments.add_argument("--key-file", type=Path, default=Path(".lethe/keys/admin.key"))
    given = arguments.parse_args()
    with Client(given.url, given.key_file.read_text().strip()) as client:
        tell(client)


def tell(client: Client) -> None:
    images, labels = load_digits(return_X_y=True)
    images = images / 16  # of the 17 shades that there are
    held_out = np.arange(len(labels)) % HELD_OUT == HELD_OUT - 1
    plain = LogisticRegression(max_iter=1000).fit(images[~held_out], labels[~held_out])
    print(
        f"scikit-learn's LogisticRegression on pixels: accuracy {plain.score(images[held_out], labels[held_out]):.1%}"
    )

    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    network_id = registered(client)
    rows, others = (upload(client, images, labels, chosen, network_id) for chosen in (~held_out, held_out))
    made = client.models.create(name="digits", dataset_id=rows, evaluation_dataset_id=others)
    report("Lethe on features", client.models.wait(made.id))
    request = client.deletion_requests.create(subject_id=PERSON)
    client.deletion_requests.wait(request.id)
    model = client.models.get(made.id)
    report(f"Lethe on features, without {PERSON}", model)

    [certificate] = [one for one in client.deletion_requests.certificates(request.id) if one.model_id == model.id]
    verdict = verification.verify(certificate.jws, client.certificates.public_keys())
    unlearned = next(one for one in verdict.guarantees if one.notion == "unlearning")
    print(f"certified: epsilon <= {unlearned.epsilon:.4f} at delta = {unlearned.delta:.2g}")
    print(f"its last limit: {verdict.statement['limits'][-1]}")
    runs = {run.kind: run for run in client.runs.list(model_id=model.id)}
    forgetting, learning = passes(model, runs[RunKind.UNLEARN]), passes(model, runs[RunKind.LEARN])
    print(f"passes over the rows: {forgetting:.1f} to forget, {learning:.1f} to learn again")


def registered(client: Client) -> str:
    """The id of the encoder, which is registered if no earlier run did."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "waves.onnx"
        file.write_bytes(encoder.waves(SIZE, STRIDE))
        named = f"waves of {SIZE} x {SIZE}"
        known = [one for one in client.networks.list() if one.name == named]
        network = (
            known[0]
            if known
            else client.networks.upload(file, name=named, licence=encoder.LICENCE, provenance=encoder.PROVENANCE)
        )
    print(f"network: {network.input_shape[0]} pixels in, {network.output_size} features out, SHA-256 {network.sha256}")
    return network.id


def upload(client: Client, images: NDArray[Any], labels: NDArray[Any], chosen: NDArray[Any], network_id: str) -> str:
    """Upload some images, each of a writer with a made-up name; the id of the dataset."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        writers = np.array([f"writer-{number:04}" for number in np.flatnonzero(chosen)])
        np.savez(file, x=images[chosen], y=labels[chosen], subject=writers)
        classes = [str(digit) for digit in range(10)]
        return client.datasets.upload(file, name="digits", classes=classes, network_id=network_id).id


def report(what: str, model: ModelOut) -> None:
    accuracy, count = model.metrics["accuracy"], model.metrics["evaluated_on"]
    print(f"{what}: accuracy {accuracy:.1%} (version {model.live_version}, on {count} images)")


def passes(model: ModelOut, run: RunOut) -> float:
    return run.steps_total / model.mechanism.num_batches


if __name__ == "__main__":
    main()
