"""`client.models` calls for canary tests on request."""

from lethe.client import http, methods, waiting
from lethe.contract import models, runs, sets
from lethe.features.canary_tests import contract


class ModelCanaryTests(methods.Resource[methods.H]):
    """Methods of `client.models` for canary tests on request."""

    audit = methods.call_one(contract.ASK, methods.Keyed)

    @methods.composed
    async def wait_for_audit(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: waiting.Progress | None = None
    ) -> runs.RunOut | None:
        """Wait until no canary test of the model is pending, and return the last test's run; None if there has been no
        test. Raises `WaitTimedOut`."""
        watch = waiting.Watch(subject=f"the canary test of model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._calls.call(models.GET, model_id, options=http.Options(within=watch.left))
            run = await self._last_canary_test(model)
            if model.audit.asked_at is None:
                return run
            status = "running" if run else "waiting"
            waiting.report(progress, status, run)
            await self._calls.sleep(watch.pause(status=status))

    async def _last_canary_test(self, model: models.ModelOut) -> runs.RunOut | None:
        """Return the newest canary test's run; while a test is pending, return it only if it is in progress."""
        status = sets.RunStatus.RUNNING if model.audit.asked_at is not None else None
        async for run in self._calls.pages(runs.LIST, arguments=runs.RunQuery(model_id=model.id, status=status)):
            if run.kind == sets.RunKind.AUDIT:
                return run
        return None
