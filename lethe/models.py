"""`client.models`: models that can forget."""

import time

import anyio

from lethe.contract import exports, gates, models, rehearsals, runs, serving
from lethe.contract.models import ModelOut
from lethe.contract.rehearsals import RehearsalOut
from lethe.contract.runs import RunOut, RunQuery
from lethe.contract.sets import ModelStatus, RehearsalStatus, RunKind, RunStatus
from lethe.http import AsyncHttp, Http, Options
from lethe.methods import H, Keyed, Resource, call, call_one, pages
from lethe.waiting import Progress, Watch

SERVED = (ModelStatus.LIVE, ModelStatus.TESTING, ModelStatus.DEGRADED)
_SETTLED = (*SERVED, ModelStatus.HELD, ModelStatus.FAILED, ModelStatus.CANCELLED, ModelStatus.RETIRED)


class _NewModel(models.ModelIn, Keyed):
    pass


class _NewRehearsal(rehearsals.RehearsalIn, Keyed):
    pass


class _Models(Resource[H]):
    create = call(models.CREATE, _NewModel)
    list = pages(models.LIST)
    get = call(models.GET)
    audit = call_one(models.AUDIT, Keyed)
    relearn = call_one(models.RELEARN, Keyed)
    retire = call(models.RETIRE)
    update = call(gates.UPDATE)
    remove_gate = call(gates.REMOVE_GATE)
    release = call(gates.RELEASE)
    remedies = call(gates.REMEDIES)
    versions = pages(models.VERSIONS)
    version = call(models.VERSION)
    weights = call(models.WEIGHTS)
    exports = pages(exports.EXPORTS)
    serving = call(serving.SERVING)
    predictions = call(models.PREDICT)
    rehearse = call_one(rehearsals.ASK, _NewRehearsal)
    rehearsal = call(rehearsals.GET)
    rehearsals = pages(rehearsals.LIST)


class Models(_Models[Http]):
    def wait(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> ModelOut:
        """The model as soon as it is live, or will not be by itself. Raises `WaitTimedOut`."""
        watch = Watch(what=f"model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = self._http.call(models.GET, model_id, options=Options(within=watch.left))
            _tell(progress, model)
            if model.status in _SETTLED:
                return model
            time.sleep(watch.pause(status=model.status))

    def wait_for_audit(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> RunOut | None:
        """The run of the last audit that was asked for, as soon as none waits; None if there never was one.
        Raises `WaitTimedOut`."""
        watch = Watch(what=f"the audit of model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = self._http.call(models.GET, model_id, options=Options(within=watch.left))
            of_it = self._http.pages(runs.LIST, given=_sought(model))
            run = next((run for run in of_it if run.kind == RunKind.AUDIT), None)
            if model.audit.asked_at is None:
                return run
            time.sleep(watch.pause(status=_tell_of_run(progress, run)))

    def wait_for_rehearsal(
        self,
        model_id: str,
        rehearsal_id: str,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> RehearsalOut:
        """The rehearsal as soon as it has ended. Raises `WaitTimedOut`."""
        watch = Watch(what=f"rehearsal {rehearsal_id}", timeout_seconds=timeout_seconds)
        while True:
            found = self._http.call(rehearsals.GET, model_id, rehearsal_id, options=Options(within=watch.left))
            if _has_ended(progress, found):
                return found
            time.sleep(watch.pause(status=found.status))


class AsyncModels(_Models[AsyncHttp]):
    async def wait(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> ModelOut:
        """As `Models.wait`."""
        watch = Watch(what=f"model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._http.call(models.GET, model_id, options=Options(within=watch.left))
            _tell(progress, model)
            if model.status in _SETTLED:
                return model
            await anyio.sleep(watch.pause(status=model.status))

    async def wait_for_audit(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> RunOut | None:
        """As `Models.wait_for_audit`."""
        watch = Watch(what=f"the audit of model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._http.call(models.GET, model_id, options=Options(within=watch.left))
            run = None
            async for one in self._http.pages(runs.LIST, given=_sought(model)):
                if one.kind == RunKind.AUDIT:
                    run = one
                    break
            if model.audit.asked_at is None:
                return run
            await anyio.sleep(watch.pause(status=_tell_of_run(progress, run)))

    async def wait_for_rehearsal(
        self,
        model_id: str,
        rehearsal_id: str,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> RehearsalOut:
        """As `Models.wait_for_rehearsal`."""
        watch = Watch(what=f"rehearsal {rehearsal_id}", timeout_seconds=timeout_seconds)
        while True:
            found = await self._http.call(rehearsals.GET, model_id, rehearsal_id, options=Options(within=watch.left))
            if _has_ended(progress, found):
                return found
            await anyio.sleep(watch.pause(status=found.status))


def _has_ended(progress: Progress | None, rehearsal: RehearsalOut) -> bool:
    if progress is not None:
        steps = rehearsal.progress
        progress(rehearsal.status, steps.steps_done if steps else 0, steps.steps_total if steps else None)
    return rehearsal.status not in (RehearsalStatus.WAITING, RehearsalStatus.RUNNING)


def _tell(progress: Progress | None, model: ModelOut) -> None:
    if progress is not None:
        steps = model.progress
        progress(model.status, steps.steps_done if steps else 0, steps.steps_total if steps else None)


def _sought(model: ModelOut) -> RunQuery:
    """The runs among which that of an audit is: while it waits, those under way."""
    return RunQuery(model_id=model.id, status=RunStatus.RUNNING if model.audit.asked_at is not None else None)


def _tell_of_run(progress: Progress | None, run: RunOut | None) -> str:
    status = RehearsalStatus.RUNNING if run else RehearsalStatus.WAITING
    if progress is not None:
        progress(status, run.steps_done if run else 0, run.steps_total if run else None)
    return status
