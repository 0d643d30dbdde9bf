"""OpenTelemetry traces. Headers and TLS certificates come from the standard `OTEL_EXPORTER_OTLP_...` variables."""

import contextlib
from collections.abc import Iterator
from typing import Any

from app.tracing import TRACEPARENT, Tracer, TraceSpan

_TIMEOUT_SECONDS = 5.0


class _OpenTelemetry:
    def __init__(self, provider: Any) -> None:
        self._provider = provider

    @contextlib.contextmanager
    def span(self, name: str, parent: str | None, attributes: dict[str, str | int | float]) -> Iterator[TraceSpan]:
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({TRACEPARENT: parent}) if parent else None
        span_context = self._provider.get_tracer("lethe").start_as_current_span(
            name,
            context=context,
            kind=SpanKind.SERVER if "http.request.method" in attributes else SpanKind.INTERNAL,
            attributes=attributes,
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

    def trace_id(self) -> str | None:
        from opentelemetry.trace import format_trace_id, get_current_span

        context = get_current_span().get_span_context()
        return format_trace_id(context.trace_id) if context.is_valid else None

    def close(self) -> None:
        self._provider.shutdown()


def tracer(endpoint: str, *, service: str) -> Tracer | None:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        return None
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return _OpenTelemetry(provider)


TRACERS = (tracer,)
