"""The story of one deletion request, on the census data beside this file: `./dev demo`.

Starts gateway and worker as one command, learns an income model over HTTP, forgets a person, and checks everything it
is told. Exit code 0 only if every step held.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.linear_model import LogisticRegression

from app.config import Settings
from app.rows import ingest
from lethe import Client
from lethe.contract.models import ModelOut
from lethe.contract.runs import RunOut
from lethe.encoding.schema import parse_schema
from lethe.errors import Gone, Problem
from lethe.proof import accountant, guarantees, methods
from lethe.proof.guarantees import Evidence, Notion
from lethe.reading import to_json

HERE = Path(__file__).parent
LETHE = str(Path(sys.executable).with_name("lethe"))
PERSON = "train-00042"
console = Console(soft_wrap=True, highlight=False)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--exit", action="store_true", help="end the service when the story is told")
    leave_running = not arguments.parse_args().exit
    settings = Settings()
    try:
        with service(settings, leave_running=leave_running) as address:
            key = settings.resolved_admin_key_file().read_text().strip()
            with Client(address, key) as client:
                tell(client, settings.data_dir)
            if leave_running:
                console.print(f"\nThe service goes on at [bold]{address}/docs[/]. Ctrl-C ends it.")
                console.print(f"Its admin key is in {settings.resolved_admin_key_file()}.")
                signal.pause()
    except (Problem, Broken) as error:
        console.print(f"[red]error:[/] {error.line if isinstance(error, Problem) else error}")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("\nGood-bye.")


class Broken(Exception):
    """A step of the story did not hold."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(f"Expected that {what}.")


@contextmanager
def service(settings: Settings, *, leave_running: bool) -> Iterator[str]:
    """`lethe up` as a child; its log goes to a file beside the data."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    log = settings.data_dir / "lethe.log"
    given = {"LETHE_DATA_DIR": str(settings.data_dir), "LETHE_PORT": str(settings.port)}
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [LETHE, "up"], stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | given
        ) as child,
    ):
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if "Lethe is at" not in line:
                raise Broken(f"the service starts; the end of {log} says why: {log.read_text().strip()[-300:]}")
            yield line.split()[3]
        finally:
            child.terminate()


def tell(client: Client, data_dir: Path) -> None:
    say(
        "Census data: 32,561 people to learn from, 16,281 to measure on. Encoded by a public schema, never by the data."
    )
    # A client of the core alone has no suppressions to list.
    if hasattr(client, "suppressions") and any(client.suppressions.list(subject_id=PERSON)):
        console.print(f"{PERSON} was forgotten before, and consents to being in the data again.")
        client.suppressions.lift(subject_id=PERSON)
    schema = HERE / "schema.json"
    with console.status("uploading"):
        people = client.datasets.upload(HERE / "train.csv", name="adult", schema=schema)
        others = client.datasets.upload(HERE / "test.csv", name="adult, to measure on", schema=schema)
    console.print(f"dataset {people.id}: {people.num_subjects:,} people, {people.num_features} features")

    say("Learning an income model by projected noisy gradient descent. All settings are defaults.")
    asked = client.models.create(name="income", dataset_id=people.id, evaluation_dataset_id=others.id)
    model = learn(client, asked.id)
    expect(model.status == "live", "the model is live after learning")
    accuracy_before = model.metrics["accuracy"]
    console.print(
        f"model {model.id}: accuracy {accuracy_before:.2%}, target epsilon {model.target.epsilon:g}"
        f" at delta {model.target.delta:.2g}"
    )

    say(f"{PERSON} asks to be forgotten.")
    started = time.monotonic()
    request = client.deletion_requests.create(subject_id=PERSON, regulation="gdpr")
    console.print(f"POST /v1/deletion-requests -> 202 {request.id}, due {request.due_at:%Y-%m-%d}")
    done = client.deletion_requests.wait(request.id)
    waited = time.monotonic() - started
    expect(done.outcome == "forgotten", "the person was held and is forgotten")
    owed = next(owed for owed in done.models if owed.model_id == model.id)
    console.print(f"{done.status}: version {owed.version} is published, {waited:.2f} s after the request")

    [certificate] = [one for one in client.deletion_requests.certificates(request.id) if one.model_id == model.id]
    accuracy_after = client.models.get(model.id).metrics["accuracy"]
    runs = {run.kind: run for run in client.runs.list(model_id=model.id)}
    what_changed(certificate.statement, runs, accuracy_before, accuracy_after)

    say("The certificate, verified offline by a process that has neither the database nor the data:")
    folder = data_dir / "demo"
    folder.mkdir(exist_ok=True)
    (folder / "certificate.json").write_text(json.dumps(to_json(certificate), indent=2))
    (folder / "jwks.json").write_text(json.dumps(client.certificates.public_keys(), indent=2))
    command = ["certificate", "verify", str(folder / "certificate.json"), "--jwks", str(folder / "jwks.json")]
    expect(run_lethe(*command) == 0, "the certificate verifies")
    say("The ledger, every number recomputed from its entries alone:")
    expect(run_lethe("ledger", "verify") == 0, "the ledger verifies")

    say("The weights that knew the person:")
    try:
        client.models.weights(model.id, 1)
    except Gone as error:
        expect(error.code == "weights_destroyed", "the old weights are gone")
        console.print(f"GET /v1/models/{model.id}/versions/1/weights -> 410 {error.code}")
    else:
        raise Broken("Expected that the old weights are gone.")


def learn(client: Client, model_id: str) -> ModelOut:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        total = client.models.get(model_id).mechanism.learn_steps
        task = bar.add_task("steps", total=total)

        def progress(status: str, steps_done: int, _steps_total: int | None) -> None:
            bar.update(task, completed=total if status == "live" else steps_done)

        return client.models.wait(model_id, progress=progress)


def what_changed(statement: Any, runs: dict[str, RunOut], accuracy_before: float, accuracy_after: float) -> None:
    """A table of before and after; the epsilons are recomputed here from the certificate's evidence."""
    evidence = Evidence.from_json(statement["evidence"])
    before = accountant.replay(evidence.mechanism, evidence.history[:-1])
    _, released = guarantees.of_chain(before, last_run=evidence.history[-2], delta=evidence.delta)
    without = {
        Notion.UNLEARNING: accountant.unlearning_mu(before, records=evidence.records),
        Notion.DELETION: accountant.deletion_mu(before, records=evidence.records, steps_present=before.steps),
        Notion.ADAPTIVE: methods.adaptive_mu(list(evidence.exposures.values())),
        Notion.RELEASE: released.mu,
    }
    table = Table("", "before", "after")
    for guarantee in evidence.guarantees():
        epsilon = guarantees.guarantee(guarantee.notion, mu=without[guarantee.notion], delta=evidence.delta).epsilon
        table.add_row(f"epsilon, {guarantee.notion}", f"{epsilon:.3f}", f"{guarantee.epsilon:.3f}")
    table.add_row("accuracy", f"{accuracy_before:.2%}", f"{accuracy_after:.2%}")
    table.add_section()
    relearned, unlearned = runs["learn"], runs["unlearn"]
    table.add_row("", "relearning", "unlearning")
    table.add_row("steps", f"{relearned.steps_total:,}", f"{unlearned.steps_total:,}")
    table.add_row("seconds", f"{seconds(relearned):.2f}", f"{seconds(unlearned):.2f}")
    console.print(table)
    read = {kind: run.steps_total / evidence.mechanism.num_batches for kind, run in runs.items() if run.steps_total}
    plain = refit(evidence.mechanism.l2)
    console.print(
        f"Passes over the rows: {read['unlearn']:.1f} to forget, {read['learn']:.1f} to relearn,"
        f" {plain.passes} by a plain refit (scikit-learn's L-BFGS, no certificate)."
    )
    met = next(g for g in evidence.guarantees() if g.notion is Notion.UNLEARNING).epsilon
    expect(met <= statement["target"]["epsilon"] * (1 + 1e-6), "the target is met")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    passes: int
    seconds: float


def refit(l2: float) -> Refit:
    """Fit the same objective to the rows of everybody but one, without noise; each iteration reads all of them."""
    schema = parse_schema(json.loads((HERE / "schema.json").read_text()))
    with (HERE / "train.csv").open("rb", buffering=0) as file:
        batches = list(ingest.read(file, kind="csv", schema=schema, folder=HERE))
    features = np.concatenate([batch.features for batch in batches])[1:]
    labels = np.concatenate([batch.labels for batch in batches])[1:]
    started = time.perf_counter()
    fitted = LogisticRegression(C=1 / (l2 * len(features)), fit_intercept=False, max_iter=1000).fit(features, labels)
    return Refit(passes=int(fitted.n_iter_.max()), seconds=time.perf_counter() - started)


def seconds(run: RunOut) -> float:
    assert run.finished_at is not None
    return (run.finished_at - run.started_at).total_seconds()


def run_lethe(*arguments: str) -> int:
    console.print(f"$ lethe {' '.join(arguments)}", style="dim")
    return subprocess.run([LETHE, *arguments], check=False).returncode


def say(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


if __name__ == "__main__":
    main()
