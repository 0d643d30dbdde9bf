"""`client.models`: models that can forget."""

from lethe.client.http import Options
from lethe.client.methods import H, Keyed, Resource, call, call_one, composed, pages
from lethe.client.waiting import Progress, Watch, report
from lethe.contract import models, runs
from lethe.contract.models import ModelOut
from lethe.contract.runs import RunOut, RunQuery
from lethe.contract.sets import ModelStatus, RunKind, RunStatus

SERVED = (ModelStatus.LIVE, ModelStatus.TESTING, ModelStatus.DEGRADED)
_SETTLED = (*SERVED, ModelStatus.HELD, ModelStatus.FAILED, ModelStatus.CANCELLED, ModelStatus.RETIRED)


class _NewModel(models.ModelIn, Keyed):
    pass


class Models(Resource[H]):
    create = call(models.CREATE, _NewModel)
    list = pages(models.LIST)
    get = call(models.GET)
    audit = call_one(models.AUDIT, Keyed)
    relearn = call_one(models.RELEARN, Keyed)
    retire = call(models.RETIRE)
    versions = pages(models.VERSIONS)
    version = call(models.VERSION)
    weights = call(models.WEIGHTS)
    predictions = call(models.PREDICT)

    @composed
    async def wait(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> ModelOut:
        """Return the model as soon as it is live, or cannot become live by itself. Raises `WaitTimedOut`."""
        watch = Watch(subject=f"model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._calls.call(models.GET, model_id, options=Options(within=watch.left))
            report(progress, model.status, model.progress)
            if model.status in _SETTLED:
                return model
            await self._calls.sleep(watch.pause(status=model.status))

    @composed
    async def wait_for_audit(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: Progress | None = None
    ) -> RunOut | None:
        """Return the run of the model's last canary test once none is pending; None if there never was one. Raises
        `WaitTimedOut`."""
        watch = Watch(subject=f"the canary test of model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._calls.call(models.GET, model_id, options=Options(within=watch.left))
            run = await self._last_canary_test(model)
            if model.audit.asked_at is None:
                return run
            status = "running" if run else "waiting"
            report(progress, status, run)
            await self._calls.sleep(watch.pause(status=status))

    async def _last_canary_test(self, model: ModelOut) -> RunOut | None:
        """Return the newest run of a canary test; while one is pending, only a running one."""
        status = RunStatus.RUNNING if model.audit.asked_at is not None else None
        async for run in self._calls.pages(runs.LIST, arguments=RunQuery(model_id=model.id, status=status)):
            if run.kind == RunKind.AUDIT:
                return run
        return None
