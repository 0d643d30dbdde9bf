"""The whole gateway as one object: `Client(url, api_key)`; resources are its attributes."""

from types import TracebackType
from typing import Self

from lethe.accounting import Accounting
from lethe.agents import Agents
from lethe.api_keys import ApiKeys
from lethe.audit_log import AuditLog
from lethe.certificates import Certificates
from lethe.datasets import Datasets
from lethe.deletion_requests import DeletionRequests
from lethe.http import Http
from lethe.identity_issuers import IdentityIssuers
from lethe.leaving_reasons import LeavingReasons
from lethe.ledger import Ledger
from lethe.lineage import Lineage
from lethe.models import Models
from lethe.overview import Overview
from lethe.runs import Runs
from lethe.suppressions import Suppressions
from lethe.tenants import Tenants
from lethe.webhooks import Webhooks


class Client:
    """Calls to one gateway with one API key, until it is closed. Raises a `lethe.errors.Problem` for everything that is
    not an answer.

    `timeout_seconds`: how long one attempt may be silent. `retry_seconds`: no attempt of a call begins later than that
    after the first; 0: each call is made once.
    """

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float = 60.0, retry_seconds: float = 30.0) -> None:
        self._http = Http(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        self.datasets = Datasets(self._http)
        self.models = Models(self._http)
        self.deletion_requests = DeletionRequests(self._http)
        self.certificates = Certificates(self._http)
        self.accounting = Accounting(self._http)
        self.ledger = Ledger(self._http)
        self.runs = Runs(self._http)
        self.overview = Overview(self._http)
        self.lineage = Lineage(self._http)
        self.suppressions = Suppressions(self._http)
        self.leaving_reasons = LeavingReasons(self._http)
        self.webhooks = Webhooks(self._http)
        self.identity_issuers = IdentityIssuers(self._http)
        self.agents = Agents(self._http)
        self.api_keys = ApiKeys(self._http)
        self.tenants = Tenants(self._http)
        self.audit_log = AuditLog(self._http)

    def close(self) -> None:
        """Give back the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()
