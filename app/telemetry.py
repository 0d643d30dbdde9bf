"""Logs and metrics: ids, numbers and names of routes; never records, weights, keys or subjects.

A log line is one JSON object on standard error whose event is dotted and in the past tense.
"""

import logging
import sys

import structlog
from prometheus_client import CollectorRegistry, Histogram, generate_latest

_registry = CollectorRegistry()
_calls = Histogram(
    "lethe_http_call_seconds", "Time to answer a call", ["method", "route", "status"], registry=_registry
)


def configure(level: str) -> None:
    """Send all logs of this process to standard error, from `level` up."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # whatever it is at the time
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log


def call_answered(*, method: str, route: str, status: int, seconds: float) -> None:
    """Count and log one HTTP call by its route (never its path, which may name a person)."""
    _calls.labels(method, route, status).observe(seconds)
    logger().debug("gateway.call_answered", method=method, route=route, status=status, seconds=round(seconds, 4))


def exposition() -> bytes:
    """All metrics of this process in Prometheus's text format."""
    return generate_latest(_registry)
