"""Lethe from Python: `with Client(url, api_key) as lethe: lethe.deletion_requests.create(subject_id=...)`."""

from lethe.client import Client

__all__ = ["Client"]
