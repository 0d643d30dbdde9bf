"""A regression that forgets, on the diabetes data that scikit-learn brings.

Learns how far the disease has gone after a year, from the public schema beside this file and with the default
settings, forgets a person, and prints both beside scikit-learn's ridge and Huber regression. Needs a service:
`./dev up`, and then `.venv/bin/python examples/diabetes/regression.py`.
"""

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import HuberRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lethe import Client, verification
from lethe.contract.models import ModelOut
from lethe.contract.runs import RunOut
from lethe.contract.sets import RunKind

HERE = Path(__file__).parent
COLUMNS = (
    "age",
    "sex",
    "bmi",
    "blood_pressure",
    "cholesterol",
    "ldl",
    "hdl",
    "cholesterol_by_hdl",
    "log_triglycerides",
    "glucose",
)
"""The columns of the data, in their order; s1 to s6 are measured in blood."""
PERSON = "patient-042"
HELD_OUT = 4  # each fourth person


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:8000")
    arguments.add_argument("--key-file", type=Path, default=Path(".lethe/keys/admin.key"))
    given = arguments.parse_args()
    with Client(given.url, given.key_file.read_text().strip()) as client:
        tell(client)


def tell(client: Client) -> None:
    x, y = load_diabetes(return_X_y=True, scaled=False)
    held_out = np.arange(len(y)) % HELD_OUT == HELD_OUT - 1
    for name, regressor in {"Ridge": Ridge(), "HuberRegressor": HuberRegressor(max_iter=1000)}.items():
        fitted = make_pipeline(StandardScaler(), regressor).fit(x[~held_out], y[~held_out])
        print(f"scikit-learn's {name}: R^2 = {fitted.score(x[held_out], y[held_out]):.2f}")

    if any(client.suppressions.list(subject_id=PERSON)):
        print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    learned_on = upload(client, "diabetes", x, y, ~held_out)
    measured_on = upload(client, "diabetes, to measure on", x, y, held_out)
    made = client.models.create(name="progression", dataset_id=learned_on, evaluation_dataset_id=measured_on)
    report("Lethe, learned", client.models.wait(made.id))
    request = client.deletion_requests.create(subject_id=PERSON)
    client.deletion_requests.wait(request.id)
    model = client.models.get(made.id)
    report(f"Lethe, without {PERSON}", model)

    [certificate] = [one for one in client.deletion_requests.certificates(request.id) if one.model_id == model.id]
    verdict = verification.verify(certificate.jws, client.certificates.public_keys())
    unlearned = next(one for one in verdict.guarantees if one.notion == "unlearning")
    print(f"certified: epsilon <= {unlearned.epsilon:.4f} at delta = {unlearned.delta:.2g}")
    runs = {run.kind: run for run in client.runs.list(model_id=model.id)}
    forgetting, learning = passes(model, runs[RunKind.UNLEARN]), passes(model, runs[RunKind.LEARN])
    print(f"passes over the rows: {forgetting:.1f} to forget, {learning:.1f} to learn again")


def upload(client: Client, name: str, x: Any, y: Any, chosen: Any) -> str:
    """Upload the rows of some people, each under a name that is made up; the id of the dataset."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.csv"
        with file.open("w", newline="") as opened:
            written = csv.writer(opened)
            written.writerow(["person", *COLUMNS, "progression"])
            for number in np.flatnonzero(chosen):
                age, sex, *others = x[number].tolist()
                written.writerow([f"patient-{number:03}", age, int(sex), *others, y[number]])
        return client.datasets.upload(file, name=name, schema=HERE / "schema.json").id


def report(what: str, model: ModelOut) -> None:
    print(
        f"{what}: R^2 = {model.metrics['r_squared']:.2f},"
        f" mean absolute error {model.metrics['mean_absolute_error']:.0f}"
        f" (version {model.live_version}, on {model.metrics['evaluated_on']} people)"
    )


def passes(model: ModelOut, run: RunOut) -> float:
    return run.steps_total / model.mechanism.num_batches


if __name__ == "__main__":
    main()
