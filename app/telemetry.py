"""Logs and metrics of one process: ids, numbers and names of routes; never records, weights, keys or subjects.

A log line is one JSON object on standard error whose event is dotted and in the past tense. What libraries log goes the
same way, but for whatever they put into their sentences: only what stands in their source code is kept. Of an exception
only its class and the places that it passed are kept: its text may quote what was sent.
"""

import logging
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from app import tracing

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MOST_PLACES = 5

_registry = CollectorRegistry()
_calls = Histogram(
    "lethe_http_call_seconds", "Time to answer a call", ["method", "route", "status"], registry=_registry
)
_deliveries = Counter(
    "lethe_webhook_deliveries", "Attempts to call back, by what came of them", ["outcome"], registry=_registry
)
_complaints = Counter(
    "lethe_log_events", "Warnings and errors that were logged", ["level", "event"], registry=_registry
)


def configure(level: str) -> None:
    """Send all logs of this process to standard error, from `level` up; of libraries information only at `debug`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _name_the_trace,
            _count_complaints,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # whatever it is at the time
    )
    root = logging.getLogger()
    if _libraries not in root.handlers:
        root.addHandler(_libraries)
    root.setLevel(logging.INFO if number == logging.DEBUG else max(number, logging.WARNING))
    logging.captureWarnings(True)
    if threading.excepthook is threading.__excepthook__:  # nobody else, such as a test runner, sees what fails
        sys.excepthook = _process_failed
        threading.excepthook = lambda given: _process_failed(given.exc_type, given.exc_value, given.exc_traceback)
        sys.unraisablehook = lambda given: _process_failed(given.exc_type, given.exc_value, given.exc_traceback)


def trace_to(endpoint: str | None, *, service: str) -> None:
    """Trace this process to the collector at `endpoint` (see `tracing.configure`); without the packages, say so."""
    if not tracing.configure(endpoint, service=service):
        logger().warning("telemetry.traces_not_sent", needs="pip install 'lethe-server[otel]'")


def logger() -> structlog.typing.FilteringBoundLogger:
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log


def call_answered(*, method: str, route: str, status: int, seconds: float) -> None:
    """Count and log one HTTP call by its route (never its path, which may name a person)."""
    method = known_method(method)
    _calls.labels(method, route, status).observe(seconds)
    logger().debug("gateway.call_answered", method=method, route=route, status=status, seconds=round(seconds, 4))


def delivery_attempted(outcome: str) -> None:
    """Count one attempt to call a receiver back: delivered, failed, gone or dead."""
    _deliveries.labels(outcome).inc()


def known_method(method: str) -> str:
    """The method of a call, if HTTP knows it: a caller may send any word."""
    return method if method in _METHODS else "other"


def exposition() -> bytes:
    """All metrics of this process in Prometheus's text format."""
    return generate_latest(_registry)


def places(trace: TracebackType | None) -> list[str]:
    """The places where an exception has been, the last place last: `service.py:120`."""
    return [_place(frame.filename, frame.lineno) for frame in traceback.extract_tb(trace)[-_MOST_PLACES:]]


class _Libraries(logging.Handler):
    """A handler of what libraries log, without the values in it."""

    def emit(self, record: logging.LogRecord) -> None:
        found: dict[str, Any] = {"logger": record.name, "place": _place(record.pathname, record.lineno)}
        if _is_written_there(record):
            found["message"] = record.msg
        if record.exc_info and record.exc_info[0]:
            found |= {"error": record.exc_info[0].__name__, "places": places(record.exc_info[2])}
        logger().log(min(record.levelno // 10, 5) * 10, "library.logged", **found)


_libraries = _Libraries()


def _is_written_there(record: logging.LogRecord) -> bool:
    """Return True if the record's message, before its arguments are put in, is a constant of the function that logs it.

    A text that was put together before has values in it.
    """
    frame: FrameType | None = sys._getframe()
    while frame and (frame.f_code.co_filename, frame.f_lineno) != (record.pathname, record.lineno):
        frame = frame.f_back
    return frame is not None and record.msg in _texts(frame.f_code.co_consts)


def _texts(constants: Iterable[object]) -> set[str]:
    return {constant for constant in constants if isinstance(constant, str)} - {""}


def _process_failed(kind: type[BaseException], _error: BaseException | None, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logger().error("process.failed", error=kind.__name__, places=places(trace))


def _place(file: str, line: int | None) -> str:
    return f"{Path(file).name}:{line}"


def _count_complaints(_logger: Any, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if level not in ("debug", "info"):
        _complaints.labels(level, event["event"]).inc()
    return event


def _name_the_trace(_logger: Any, _level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    trace_id = tracing.trace_id()
    if trace_id:
        event["trace_id"] = trace_id
    return event
