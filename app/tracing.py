"""Traces for an OpenTelemetry collector: durations of calls and phases. Off unless an endpoint is configured.

Spans are named by route or phase and carry the same data as logs: ids, numbers, codes. Paths, queries, bodies and texts
of exceptions are not recorded. A caller's `traceparent` is continued, and nothing else of it is kept.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

TRACEPARENT = "traceparent"

_TIMEOUT_SECONDS = 5.0


class TraceSpan(Protocol):
    def update_name(self, name: str) -> None: ...

    def set_attribute(self, key: str, value: str | int | float) -> None: ...


class _NoSpan:
    def update_name(self, name: str) -> None:
        pass

    def set_attribute(self, key: str, value: str | int | float) -> None:
        pass


_provider: Any = None


def configure(endpoint: str | None, *, service: str) -> bool:
    """Send spans to the collector at `endpoint` (OTLP over HTTP, such as `http://collector:4318`); send none if it is
    None.

    Headers and certificates come from OpenTelemetry's `OTEL_EXPORTER_OTLP_...` variables. Return False if the packages
    are missing.
    """
    global _provider
    close()
    if endpoint is None:
        return True
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _provider = provider
    return True


def close() -> None:
    """Send the remaining spans and stop tracing."""
    global _provider
    if _provider is not None:
        _provider.shutdown()
        _provider = None


@contextlib.contextmanager
def span(name: str, *, parent: str | None = None, **attributes: str | int | float | None) -> Iterator[TraceSpan]:
    """Open a span around the block, as child of `parent`, a traceparent, or of the open span of this thread. An
    exception that leaves the block is recorded by the name of its class."""
    if _provider is None:
        yield _NoSpan()
        return
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({TRACEPARENT: parent}) if parent else None
    span_context = _provider.get_tracer("lethe").start_as_current_span(
        name,
        context=context,
        kind=SpanKind.SERVER if "http.request.method" in attributes else SpanKind.INTERNAL,
        attributes={key: value for key, value in attributes.items() if value is not None},
        record_exception=False,
        set_status_on_exception=False,
    )
    with span_context as current:
        try:
            yield current
        except BaseException as error:
            current.set_attribute("error.type", type(error).__name__)
            current.set_status(Status(StatusCode.ERROR))
            raise


def trace_id() -> str | None:
    """Return the id of the trace of this thread's open span; None without one."""
    if _provider is None:
        return None
    from opentelemetry.trace import format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return format_trace_id(context.trace_id) if context.is_valid else None
