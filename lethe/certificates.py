"""`client.certificates`: what was signed, and whether it holds."""

import datetime
from dataclasses import dataclass
from typing import Any

from lethe.endpoints import Endpoint
from lethe.errors import CertificateInvalid
from lethe.http import Http
from lethe.values import Joint, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """`jws` is what is signed and verified; `statement` is what it says, decoded for reading."""

    id: str
    request_id: str
    model_id: str
    version: int
    issued_at: datetime.datetime
    jws: str
    statement: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """That nothing was held about a person: `jws` is verified as that of a certificate is."""

    jws: str
    statement: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatesOfRequest:
    """`joint`: what all models tell together, None until every one has forgotten. `nothing_held`: of a request that
    held nothing."""

    request_id: str
    certificates: tuple[Certificate, ...]
    joint: Joint | None
    nothing_held: Absence | None


GET = Endpoint("GET", "/v1/certificates/{certificate_id}", Certificate)
VERIFY = Endpoint("POST", "/v1/certificates:verify", Verdict, idempotent=True)
PUBLIC_KEYS = Endpoint("GET", "/.well-known/jwks.json", dict[str, Any])


class Certificates:
    def __init__(self, http: Http) -> None:
        self._http = http

    def get(self, certificate_id: str) -> Certificate:
        return self._http.call(GET, certificate_id)

    def public_keys(self) -> dict[str, Any]:
        """The JSON Web Key Set that this gateway's certificates are verified with; keep it beside them."""
        return self._http.call(PUBLIC_KEYS)

    def verify(
        self,
        certificate: Certificate | Absence | str,
        *,
        jwks: dict[str, Any] | None = None,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
    ) -> Verdict:
        """Check signature and numbers of a certificate or its JWS: by the gateway, or, with the issuer's keys, here,
        without a call (see `lethe.verification`). Raises `CertificateInvalid`, also for a certificate that says
        otherwise than its JWS, and `CertificateBeyondLimits` for one that guarantees less of forgetting than
        `max_epsilon` and `max_delta`."""
        jws = certificate if isinstance(certificate, str) else certificate.jws
        if jwks is None:
            asked = {"jws": jws, "max_epsilon": max_epsilon, "max_delta": max_delta}
            verdict = self._http.call(VERIFY, json=asked)
        else:
            from lethe import verification  # numpy and scipy, for those who need them

            verdict = verification.verify(jws, jwks, max_epsilon=max_epsilon, max_delta=max_delta)
        if not isinstance(certificate, str) and not _says(certificate, verdict.statement):
            raise CertificateInvalid("What stands beside the JWS is not what was signed.")
        return verdict


def _says(certificate: Certificate | Absence, signed: dict[str, Any]) -> bool:
    if isinstance(certificate, Absence) or "certificate_id" not in signed:
        return isinstance(certificate, Absence) and certificate.statement == signed
    request, model = signed["request"], signed["model"]
    stated = (certificate.id, certificate.request_id, certificate.model_id, certificate.version)
    return certificate.statement == signed and stated == (
        signed["certificate_id"],
        request["id"],
        model["id"],
        model["version"],
    )
