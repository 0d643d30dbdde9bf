"""Offline verification of certificates and ledgers with only the issuer's public keys, without trusting a service.

`verify(jws, jwks)` checks a certificate's signature and recomputes every number in its statement. `verify_file(text,
jwks)` does this for all certificates of a deletion request, and recomputes their joint guarantee. `verify_ledger(file,
jwks)` does this for every entry of an exported ledger, and compares the ledger with its signed head.
"""

from lethe.verification.certificates import verify
from lethe.verification.exports import verify_ledger
from lethe.verification.proof_files import VerifiedFile, verify_file

__all__ = ["VerifiedFile", "verify", "verify_file", "verify_ledger"]
