"""Certificates and ledgers, verified here: with the issuer's public keys and nothing else, so no service is believed.

`verify(jws, jwks)` checks the signature of a certificate and recomputes every number of its statement;
`verify_ledger(file, jwks)` does so with every entry of an exported ledger, and holds it against its signed head.
"""

from lethe.verification.certificates import verify
from lethe.verification.exports import verify_ledger

__all__ = ["verify", "verify_ledger"]
