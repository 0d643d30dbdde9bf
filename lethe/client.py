"""The whole gateway as one object: `Client(url, api_key)`, or `AsyncClient`; resources are its attributes."""

from types import TracebackType
from typing import Generic, Self

from lethe.accounting import Accounting
from lethe.agents import Agents
from lethe.api_keys import ApiKeys
from lethe.audit_log import AuditLog
from lethe.certificates import AsyncCertificates, Certificates
from lethe.datasets import Datasets
from lethe.deletion_requests import AsyncDeletionRequests, DeletionRequests
from lethe.http import AsyncHttp, Http
from lethe.identity_issuers import IdentityIssuers
from lethe.leaving_reasons import LeavingReasons
from lethe.ledger import Ledger
from lethe.lineage import Lineage
from lethe.methods import H
from lethe.models import AsyncModels, Models
from lethe.networks import Networks
from lethe.overview import Overview
from lethe.runs import Runs
from lethe.saved_views import SavedViews
from lethe.suppressions import Suppressions
from lethe.tenants import Tenants
from lethe.users import Users
from lethe.webhooks import Webhooks


class _Resources(Generic[H]):
    def __init__(self, http: H) -> None:
        self._http = http
        self.datasets = Datasets(http)
        self.networks = Networks(http)
        self.accounting = Accounting(http)
        self.ledger = Ledger(http)
        self.runs = Runs(http)
        self.overview = Overview(http)
        self.lineage = Lineage(http)
        self.saved_views = SavedViews(http)
        self.suppressions = Suppressions(http)
        self.leaving_reasons = LeavingReasons(http)
        self.webhooks = Webhooks(http)
        self.identity_issuers = IdentityIssuers(http)
        self.agents = Agents(http)
        self.api_keys = ApiKeys(http)
        self.tenants = Tenants(http)
        self.users = Users(http)
        self.audit_log = AuditLog(http)


class Client(_Resources[Http]):
    """Calls to one gateway with one API key, until it is closed. Raises a `lethe.errors.Problem` for everything that is
    not an answer.

    `timeout_seconds`: how long one attempt may be silent. `retry_seconds`: no attempt of a call begins later than that
    after the first; 0: each call is made once.
    """

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float = 60.0, retry_seconds: float = 30.0) -> None:
        super().__init__(Http(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds))
        self.models = Models(self._http)
        self.deletion_requests = DeletionRequests(self._http)
        self.certificates = Certificates(self._http)

    def close(self) -> None:
        """Give back the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Resources[AsyncHttp]):
    """The same calls, awaited, under asyncio or trio; lists are asynchronous iterators."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float = 60.0, retry_seconds: float = 30.0) -> None:
        super().__init__(AsyncHttp(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds))
        self.models = AsyncModels(self._http)
        self.deletion_requests = AsyncDeletionRequests(self._http)
        self.certificates = AsyncCertificates(self._http)

    async def close(self) -> None:
        """Give back the connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()
