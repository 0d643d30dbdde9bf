"""`client.models` calls for rehearsals."""

from lethe.client import http, methods, waiting
from lethe.features.rehearsals import contract


class _NewRehearsal(contract.RehearsalIn, methods.Keyed):
    pass


class ModelRehearsals(methods.Resource[methods.H]):
    """Methods of `client.models` for rehearsals."""

    rehearse = methods.call_one(contract.ASK, _NewRehearsal)
    rehearsal = methods.call(contract.GET)
    rehearsals = methods.pages(contract.LIST)

    @methods.composed
    async def wait_for_rehearsal(
        self,
        model_id: str,
        rehearsal_id: str,
        *,
        timeout_seconds: float | None = None,
        progress: waiting.Progress | None = None,
    ) -> contract.RehearsalOut:
        """Wait until a rehearsal has ended, and return it. Raises `WaitTimedOut`."""
        watch = waiting.Watch(subject=f"rehearsal {rehearsal_id}", timeout_seconds=timeout_seconds)
        while True:
            options = http.Options(within=watch.left)
            rehearsal = await self._calls.call(contract.GET, model_id, rehearsal_id, options=options)
            waiting.report(progress, rehearsal.status, rehearsal.progress)
            if rehearsal.status not in (contract.RehearsalStatus.WAITING, contract.RehearsalStatus.RUNNING):
                return rehearsal
            await self._calls.sleep(watch.pause(status=rehearsal.status))
