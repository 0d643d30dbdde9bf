"""Clients for a gateway: `Client(url, api_key)` and `AsyncClient`, with one attribute per resource."""

from typing import Any, Generic, Self, get_origin, get_type_hints

from lethe.client import resources
from lethe.client.http import AsyncHttp, Http
from lethe.client.methods import H, Resource


class Resources(Generic[H]):
    """Resources of a client, each declared by an annotation. Features add and extend resources in a subclass."""

    datasets: resources.Datasets[H]
    models: resources.Models[H]
    runs: resources.Runs[H]
    deletion_requests: resources.DeletionRequests[H]
    certificates: resources.Certificates[H]
    api_keys: resources.ApiKeys[H]
    tenants: resources.Tenants[H]

    def __init__(self, http: H) -> None:
        self._http = http
        for attribute, resource in resource_classes(type(self)).items():
            setattr(self, attribute, resource(http))


def resource_classes(client: type[Resources[Any]]) -> dict[str, type[Resource[Any]]]:
    """Map each attribute of a client to the class of its resource."""
    return {attribute: get_origin(declared) for attribute, declared in get_type_hints(client).items()}


class Client(Resources[Http]):
    """Blocking client for one gateway and one API key, usable until it is closed. Every failure raises a
    `lethe.errors.Problem`.

    `timeout_seconds` limits how long the gateway may be silent during an attempt. No attempt of a call begins later
    than `retry_seconds` after the first one; with 0, each call is attempted once.
    """

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float = 60.0, retry_seconds: float = 30.0) -> None:
        super().__init__(Http(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds))

    def close(self) -> None:
        """Release the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncClient(Resources[AsyncHttp]):
    """Client with the same calls as `Client`, awaited under asyncio or trio. Lists are asynchronous iterators."""

    def __init__(self, url: str, api_key: str, *, timeout_seconds: float = 60.0, retry_seconds: float = 30.0) -> None:
        super().__init__(AsyncHttp(url, api_key, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds))

    async def close(self) -> None:
        """Release the connections."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
