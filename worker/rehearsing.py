"""The run of a rehearsal, from the draw to the report: what it reads is opened here, and closed when it ends."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from app import tracing
from app.catalogue import datasets
from app.catalogue import repository as catalogue_repository
from app.db.tables import Dataset, Model
from app.installations import Installation
from app.rows import repository as rows_repository
from app.unlearning import queue, rehearsals
from app.unlearning import service as unlearning
from app.unlearning.queue import ClaimedRun
from app.unlearning.rehearsals import Drawn
from app.vault import weights
from lethe.contract.problems import ModelNotLive
from lethe.contract.sets import RunKind
from lethe.proof.mechanism import Mechanism
from worker import isolated, rehearsal
from worker.langevin import init
from worker.measured import Measure
from worker.rehearsal import Forgetting, Sets


def run(
    installation: Installation,
    claimed: ClaimedRun,
    mechanism: Mechanism,
    root: str,
    *,
    network: bytes | None,
    on_progress: Callable[[int], None],
    on_opened: Callable[[], None],
) -> None:
    """Draw people, forget them on one copy, learn another without them, and end the run with what that showed.

    Nothing of who was drawn leaves this function. `on_progress` and `on_opened` end it by raising.
    """
    assert claimed.parent_version_id is not None
    with installation.database.reading() as session:
        drawn = rehearsals.draw(session, run_id=claimed.run_id)
        dataset = session.get_one(Dataset, claimed.dataset_id)
        version = catalogue_repository.live_version(session, session.get_one(Model, claimed.model_id))
        target = datasets.target_of(dataset)
    if version is None or version.id != claimed.parent_version_id:
        raise ModelNotLive("The version that a rehearsal was to go on from is not live any more.")
    with installation.database.writing() as session:
        plan = queue.plan_rehearsal(session, run_id=claimed.run_id, records=len(drawn.forget))
    live = weights.from_safetensors(installation.weights.get(claimed.parent_version_id))
    with (
        tracing.span("steps"),
        _measured_on(installation, claimed, root, drawn) as sets,
        installation.rows.open(claimed.dataset_id, root, without=drawn.forget) as rows,
    ):
        origin = init.origin_of(mechanism, rows.shape.num_columns)
        goes_on = plan.kind == RunKind.UNLEARN
        report = rehearsal.run(
            mechanism,
            version=version.number,
            live=live,
            forgetting=Forgetting(
                way=plan.kind,
                initial=live if goes_on else origin,
                first_step=claimed.first_step if goes_on else 0,
                steps=plan.steps,
            ),
            origin=origin,
            without=functools.partial(
                isolated.run,
                mechanism,
                rows=rows,
                device=installation.settings.device,
                threads=installation.settings.threads,
                on_opened=on_opened,
                network=network,
            ),
            sets=sets,
            measure=Measure(mechanism=mechanism, network=network, target=target),
            on_progress=on_progress,
        )
    with installation.database.writing() as session:
        unlearning.end_rehearsal(session, run_id=claimed.run_id, report=report.model_dump(mode="json"))


@contextmanager
def _measured_on(installation: Installation, claimed: ClaimedRun, root: str, drawn: Drawn) -> Iterator[Sets]:
    """The sets of rows on which it is measured, in memory until the block ends."""
    evaluated_on, test = claimed.evaluation_dataset_id, None
    with ExitStack() as stack:
        if evaluated_on is not None and drawn.test is not None:
            stack.enter_context(installation.rows.alone(evaluated_on))  # its own runs edit it
            with installation.database.reading() as session:
                test_root = rows_repository.root(session, evaluated_on)
            if test_root is not None:
                test = installation.rows.read(evaluated_on, test_root, holding=drawn.test)
        sets = stack.enter_context(
            Sets.of(
                installation.rows.read(claimed.dataset_id, root, holding=drawn.measured),
                installation.rows.read(claimed.dataset_id, root, holding=drawn.retain),
                test,
                forget_slots=drawn.measured,
                retain_slots=drawn.retain,
                test_slots=drawn.test or (),
            )
        )
        yield sets
