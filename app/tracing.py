"""Traces: durations of calls and phases, sent to a collector by a feature. Off unless an endpoint is configured.

Spans are named after a route or phase and carry the same data as logs: ids, numbers and codes. Paths, queries, bodies
and exception texts are not recorded. A caller's `traceparent` is continued; its other headers are not kept.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from lethe import sockets

TRACEPARENT = "traceparent"


class TraceSpan(Protocol):
    def update_name(self, name: str) -> None: ...

    def set_attribute(self, key: str, value: str | int | float) -> None: ...


class Tracer(Protocol):
    """Interface of a tracer, which sends spans. A feature's `traces` module lists functions as `TRACERS`: each takes an
    endpoint and a `service`, and returns a tracer, or None if the packages it needs are missing."""

    def span(
        self, name: str, parent: str | None, attributes: dict[str, str | int | float]
    ) -> AbstractContextManager[TraceSpan]: ...

    def trace_id(self) -> str | None: ...

    def close(self) -> None: ...


class _NoSpan:
    def update_name(self, name: str) -> None:
        pass

    def set_attribute(self, key: str, value: str | int | float) -> None:
        pass


_tracer: Tracer | None = None


def configure(endpoint: str | None, *, service: str) -> bool:
    """Send spans to the collector at `endpoint` (OTLP over HTTP, such as `http://collector:4318`); send none if
    `endpoint` is None. Return False if no installed feature can send them."""
    global _tracer
    close()
    if endpoint is not None:
        makers = sockets.plugs("app.features", "traces", "TRACERS")
        _tracer = next(filter(None, (make(endpoint, service=service) for make in makers)), None)
    return endpoint is None or _tracer is not None


def close() -> None:
    """Send the remaining spans and stop tracing."""
    global _tracer
    if _tracer is not None:
        _tracer.close()
        _tracer = None


def span(
    name: str, *, parent: str | None = None, **attributes: str | int | float | None
) -> AbstractContextManager[TraceSpan]:
    """Open a span around the block, as a child of the traceparent `parent` or of this thread's open span. An exception
    that leaves the block is recorded by class name only."""
    known = {key: value for key, value in attributes.items() if value is not None}
    return nullcontext(_NoSpan()) if _tracer is None else _tracer.span(name, parent, known)


def trace_id() -> str | None:
    """Return the trace id of this thread's open span, or None if no span is open."""
    return _tracer.trace_id() if _tracer else None
