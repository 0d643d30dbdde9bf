"""A client's resources: calls about models, requests, certificates and the other objects of the core."""

from collections.abc import Iterator
from typing import Any, Literal

from lethe.client import http, waiting
from lethe.client.methods import H, Keyed, Resource, call, call_one, checked, composed, makes, pages, upload
from lethe.contract import api_keys, certificates, datasets, deletion_requests, fields, models, problems, runs, tenants
from lethe.contract.certificates import AbsenceOut, CertificateOut, CertificateVerdictOut
from lethe.contract.sets import ModelStatus, RequestModelStatus, RequestStatus


class ApiKeys(Resource[H]):
    """`client.api_keys`: API keys and their scopes; all calls require the admin scope.

    A call that creates a key is not repeated automatically: if its response is lost, revoke the key you never saw.
    """

    create = call(api_keys.CREATE)
    list = pages(api_keys.LIST)
    get = call(api_keys.GET)
    rotate = call(api_keys.ROTATE)
    revoke = call(api_keys.REVOKE)


class _Dataset(datasets.TableIn, Keyed):
    name: str | None = fields.optional("Name of the dataset. Default: the file's name.")


class Datasets(Resource[H]):
    """`client.datasets`: rows that models are trained on."""

    upload = upload(datasets.UPLOAD, _Dataset)
    list = pages(datasets.LIST)
    get = call(datasets.GET)
    retire = call(datasets.RETIRE)
    recheck = call(datasets.RECHECK, timeout_seconds=600.0)
    subject = call(datasets.SUBJECT)


class Runs(Resource[H]):
    """`client.runs`: the workers' past and current runs."""

    list = pages(runs.LIST)
    get = call(runs.GET)
    cancel = call(runs.CANCEL)


class Tenants(Resource[H]):
    """`client.tenants`: an installation's tenants (operator scope), and the caller's own policy (admin scope).

    A call that creates a tenant is not repeated automatically: if its response is lost, the name is taken and the
    admin's key is lost.
    """

    create = call(tenants.CREATE)
    list = pages(tenants.LIST)
    get = call(tenants.GET)
    own = call(tenants.OWN)
    set_policy = call(tenants.CHANGE_OWN)


SERVED = (ModelStatus.LIVE, ModelStatus.TESTING, ModelStatus.DEGRADED)
_SETTLED = (*SERVED, ModelStatus.HELD, ModelStatus.FAILED, ModelStatus.CANCELLED, ModelStatus.RETIRED)


class _NewModel(models.ModelIn, Keyed):
    pass


class Models(Resource[H]):
    create = call(models.CREATE, _NewModel)
    list = pages(models.LIST)
    get = call(models.GET)
    relearn = call_one(models.RELEARN, Keyed)
    retire = call(models.RETIRE)
    versions = pages(models.VERSIONS)
    version = call(models.VERSION)
    weights = call(models.WEIGHTS)

    @composed
    async def wait(
        self, model_id: str, *, timeout_seconds: float | None = None, progress: waiting.Progress | None = None
    ) -> models.ModelOut:
        """Return the model as soon as it is live, or cannot become live without another call. Raises `WaitTimedOut`."""
        watch = waiting.Watch(subject=f"model {model_id}", timeout_seconds=timeout_seconds)
        while True:
            model = await self._calls.call(models.GET, model_id, options=http.Options(within=watch.left))
            waiting.report(progress, model.status, model.progress)
            if model.status in _SETTLED:
                return model
            await self._calls.sleep(watch.pause(status=model.status))


Certificate = CertificateOut | AbsenceOut | str
"""Certificate as returned by the gateway, or its JWS."""


class Certificates(Resource[H]):
    get = call(certificates.GET)
    public_keys = call(certificates.PUBLIC_KEYS)

    @composed
    @makes(certificates.VERIFY)
    async def verify(
        self,
        certificate: Certificate,
        *,
        jwks: dict[str, Any] | None = None,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
    ) -> CertificateVerdictOut:
        """Check the signature and numbers of a certificate: at the gateway or, given the issuer's keys, locally without
        a call (see `lethe.verification`). Raises `CertificateInvalid`, including if a certificate differs from its JWS,
        and `CertificateBeyondLimits` if its guarantee of forgetting exceeds the limits."""
        jws = certificate if isinstance(certificate, str) else certificate.jws
        limits = {"max_epsilon": max_epsilon, "max_delta": max_delta}
        if jwks is None:
            body = checked(certificates.CertificateIn, {"jws": jws, **limits})
            return _compare(certificate, await self._calls.call(certificates.VERIFY, arguments=body))
        # Imported late, because it needs numpy and scipy.
        from lethe import verification

        return _compare(certificate, verification.verify(jws, jwks, **limits))


def _compare(certificate: Certificate, verdict: CertificateVerdictOut) -> CertificateVerdictOut:
    """Raise `CertificateInvalid` if the fields next to a JWS differ from its statement, otherwise return `verdict`."""
    signed = verdict.statement
    match certificate:
        case CertificateOut() if "certificate_id" in signed:
            stated = (certificate.id, certificate.request_id, certificate.model_id, certificate.version)
            about = (
                signed["certificate_id"],
                signed["request"]["id"],
                signed["model"]["id"],
                signed["model"]["version"],
            )
            is_same = certificate.statement == signed and stated == about
        case CertificateOut():
            is_same = False
        case AbsenceOut():
            is_same = certificate.statement == signed
        case _:
            is_same = True
    if not is_same:
        raise problems.CertificateInvalid("The fields beside the JWS differ from its statement.")
    return verdict


ENDED = frozenset({RequestStatus.COMPLETED, RequestStatus.CANCELLED, RequestStatus.REJECTED})
CertificateList = list[CertificateOut]


class _NewRequest(deletion_requests.DeletionRequestIn, deletion_requests.CreateDeletionRequestQuery, Keyed):
    pass


class _Identity(deletion_requests.PauseIn):
    reason: Literal["identity"] = "identity"


class DeletionRequests(Resource[H]):
    create = call(deletion_requests.CREATE, _NewRequest)
    list = pages(deletion_requests.LIST)
    get = call(deletion_requests.GET)
    events = pages(deletion_requests.EVENTS)
    cancel = call(deletion_requests.CANCEL)
    approve = call(deletion_requests.APPROVE)
    reject = call(deletion_requests.REJECT)
    extend = call(deletion_requests.EXTEND)
    pause = call_one(deletion_requests.PAUSE, _Identity)
    resume = call(deletion_requests.RESUME)
    proof = call(deletion_requests.CERTIFICATES)

    @composed
    async def certificates(self, request_id: str) -> CertificateList:
        """Return the certificates of all models that have forgotten the person so far."""
        return (await self._calls.call(deletion_requests.CERTIFICATES, request_id)).certificates

    @composed
    async def wait(
        self, request_id: str, *, timeout_seconds: float | None = None, progress: waiting.Progress | None = None
    ) -> deletion_requests.DeletionRequestOut:
        """Return the request as soon as it is completed, cancelled or rejected. Raises `WaitTimedOut`."""
        watch = waiting.Watch(subject=f"deletion request {request_id}", timeout_seconds=timeout_seconds)
        steps = _RequestSteps()
        while True:
            request = await self._calls.call(deletion_requests.GET, request_id, options=http.Options(within=watch.left))
            for run_id in steps.unknown(request) if progress is not None else ():
                try:
                    steps.add(await self._calls.call(runs.GET, run_id))
                except problems.NotAllowed:
                    steps.may_read = False
            if progress is not None:
                progress(request.status, *steps.of(request))
            if request.status in ENDED:
                return request
            await self._calls.sleep(watch.pause(status=request.status))


class _RequestSteps:
    """Steps of a request: those of its runs, plus estimates for runs that have not begun. They are unknown if the key
    may not read runs."""

    def __init__(self) -> None:
        self._runs: dict[str, runs.RunOut] = {}
        self.may_read = True

    def add(self, run: runs.RunOut) -> None:
        self._runs[run.id] = run

    def unknown(self, request: deletion_requests.DeletionRequestOut) -> Iterator[str]:
        """Yield the ids of runs to fetch: those that had not ended when last fetched."""
        for progress in request.models:
            run = self._runs.get(progress.run_id or "")
            if run is not None and run.finished_at:
                continue
            if self.may_read and progress.run_id and progress.status is not RequestModelStatus.PENDING:
                yield progress.run_id

    def of(self, request: deletion_requests.DeletionRequestOut) -> tuple[int, int | None]:
        """Return the number of steps done, and the total number, or None if the total is unknown."""
        estimated = {model.model_id: model.steps for model in request.estimate.models} if request.estimate else {}
        done = total = 0
        for progress in request.models:
            run = self._runs.get(progress.run_id or "")
            if progress.status is RequestModelStatus.PENDING:
                total += estimated.get(progress.model_id, 0)
            elif run is not None:
                done, total = done + run.steps_done, total + run.steps_total
        return done, total if self.may_read and total else None
