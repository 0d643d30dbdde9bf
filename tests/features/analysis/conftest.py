"""Fixtures of the proofs, reused for the theorems."""

from tests.lethe.proof.conftest import digits

__all__ = ["digits"]
