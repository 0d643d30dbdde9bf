"""Metrics of the service and of its runs for Prometheus."""
