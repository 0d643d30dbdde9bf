"""Logs and metrics of one process: ids, numbers and route names; never records, weights, keys or subjects.

A log line is one JSON object on standard error, with a dotted event name in the past tense. Library messages are logged
only if they are constants in the source, and without their arguments. For exceptions, only the class and stack are
logged, because the text may quote personal data.
"""

import logging
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from app import tracing

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MAX_STACK_FRAMES = 5

registry = CollectorRegistry()
"""Registry of this process's counters; features add their own counters to it."""
_calls = Histogram("lethe_http_call_seconds", "Time to answer a call", ["method", "route", "status"], registry=registry)
_complaints = Counter("lethe_log_events", "Warnings and errors that were logged", ["level", "event"], registry=registry)


def configure(level: str) -> None:
    """Log to standard error at `level` and above. Informational messages from libraries are logged only at `debug`."""
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
        # Look up sys.stderr at each use, because it may be replaced. Write a line and its end at once: other processes
        # write to the same file.
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )
    root = logging.getLogger()
    if _libraries not in root.handlers:
        root.addHandler(_libraries)
    root.setLevel(logging.INFO if number == logging.DEBUG else max(number, logging.WARNING))
    logging.captureWarnings(True)
    # Keep the hooks of a test runner or similar.
    if threading.excepthook is threading.__excepthook__:
        sys.excepthook = _process_failed
        threading.excepthook = lambda args: _process_failed(args.exc_type, args.exc_value, args.exc_traceback)
        sys.unraisablehook = lambda args: _process_failed(args.exc_type, args.exc_value, args.exc_traceback)


def trace_to(endpoint: str | None, *, service: str) -> None:
    """Send this process's traces to the collector at `endpoint` (see `tracing.configure`). Log a warning if the
    OpenTelemetry packages are not installed."""
    if not tracing.configure(endpoint, service=service):
        logger().warning("telemetry.traces_not_sent", needs="pip install 'lethe-server[otel]'")


def logger() -> structlog.typing.FilteringBoundLogger:
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log


def call_answered(*, method: str, route: str, status: int, seconds: float) -> None:
    """Count and log one HTTP call under its known method and route, never its path, which may name a person."""
    _calls.labels(method, route, status).observe(seconds)
    logger().debug("gateway.call_answered", method=method, route=route, status=status, seconds=round(seconds, 4))


def known_method(method: str) -> str:
    """Return a standard HTTP method unchanged and any other as "other", because callers can send any word."""
    return method if method in _METHODS else "other"


def places(trace: TracebackType | None) -> list[str]:
    """Return the innermost frames of a traceback, innermost last, such as `service.py:120`."""
    return [_place(frame.filename, frame.lineno) for frame in traceback.extract_tb(trace)[-_MAX_STACK_FRAMES:]]


class _Libraries(logging.Handler):
    """Handler for libraries' log records; it drops their arguments."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "place": _place(record.pathname, record.lineno)}
        if _has_constant_message(record):
            fields["message"] = record.msg
        if record.exc_info and record.exc_info[0]:
            fields |= {"error": record.exc_info[0].__name__, "places": places(record.exc_info[2])}
        logger().log(min(record.levelno // 10, 5) * 10, "library.logged", **fields)


_libraries = _Libraries()


def _has_constant_message(record: logging.LogRecord) -> bool:
    """Return True if the message, without its arguments, is a constant in the function that logs it. Other messages may
    contain values."""
    frame: FrameType | None = sys._getframe()
    while frame and (frame.f_code.co_filename, frame.f_lineno) != (record.pathname, record.lineno):
        frame = frame.f_back
    is_text = isinstance(record.msg, str) and record.msg != ""
    return is_text and frame is not None and record.msg in frame.f_code.co_consts


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
