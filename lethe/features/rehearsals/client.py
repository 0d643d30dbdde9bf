"""`client.models` calls for rehearsals."""

from lethe.client.http import Options
from lethe.client.methods import H, Keyed, Resource, call, call_one, composed, pages
from lethe.client.waiting import Progress, Watch, report
from lethe.features.rehearsals import contract


class _NewRehearsal(contract.RehearsalIn, Keyed):
    pass


class ModelRehearsals(Resource[H]):
    """Methods of `client.models` for rehearsals."""

    rehearse = call_one(contract.ASK, _NewRehearsal)
    rehearsal = call(contract.GET)
    rehearsals = pages(contract.LIST)

    @composed
    async def wait_for_rehearsal(
        self,
        model_id: str,
        rehearsal_id: str,
        *,
        timeout_seconds: float | None = None,
        progress: Progress | None = None,
    ) -> contract.RehearsalOut:
        """Wait until a rehearsal has ended, and return it. Raises `WaitTimedOut`."""
        watch = Watch(subject=f"rehearsal {rehearsal_id}", timeout_seconds=timeout_seconds)
        while True:
            options = Options(within=watch.left)
            rehearsal = await self._calls.call(contract.GET, model_id, rehearsal_id, options=options)
            report(progress, rehearsal.status, rehearsal.progress)
            if rehearsal.status not in (contract.RehearsalStatus.WAITING, contract.RehearsalStatus.RUNNING):
                return rehearsal
            await self._calls.sleep(watch.pause(status=rehearsal.status))
