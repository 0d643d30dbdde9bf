"""`client.certificates`: signed statements about forgotten people."""

from typing import Any

from lethe.client.arguments import checked
from lethe.client.methods import H, Resource, call, composed, makes
from lethe.contract import certificates
from lethe.contract.certificates import AbsenceOut, CertificateOut, CertificateVerdictOut
from lethe.contract.problems import CertificateInvalid

Certificate = CertificateOut | AbsenceOut | str
"""Certificate as the gateway returns it, or its JWS."""


class Certificates(Resource[H]):
    get = call(certificates.GET)
    public_keys = call(certificates.PUBLIC_KEYS)

    @composed
    @makes(certificates.VERIFY)
    async def verify(
        self,
        certificate: Certificate,
        *,
        jwks: dict[str, Any] | None = None,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
    ) -> CertificateVerdictOut:
        """Check the signature and numbers of a certificate: at the gateway or, given the issuer's keys, locally without
        a call (see `lethe.verification`). Raises `CertificateInvalid`, also if a certificate differs from its JWS, and
        `CertificateBeyondLimits` if its guarantee of forgetting exceeds the limits."""
        jws = certificate if isinstance(certificate, str) else certificate.jws
        limits = {"max_epsilon": max_epsilon, "max_delta": max_delta}
        if jwks is None:
            body = checked(certificates.CertificateIn, {"jws": jws, **limits})
            return _compare(certificate, await self._calls.call(certificates.VERIFY, arguments=body))
        # Imported late, because it needs numpy and scipy.
        from lethe import verification

        return _compare(certificate, verification.verify(jws, jwks, **limits))


def _compare(certificate: Certificate, verdict: CertificateVerdictOut) -> CertificateVerdictOut:
    """Raise `CertificateInvalid` if the fields beside a JWS differ from its statement, otherwise return `verdict`."""
    signed = verdict.statement
    match certificate:
        case CertificateOut() if "certificate_id" in signed:
            stated = (certificate.id, certificate.request_id, certificate.model_id, certificate.version)
            about = (
                signed["certificate_id"],
                signed["request"]["id"],
                signed["model"]["id"],
                signed["model"]["version"],
            )
            is_same = certificate.statement == signed and stated == about
        case CertificateOut():
            is_same = False
        case AbsenceOut():
            is_same = certificate.statement == signed
        case _:
            is_same = True
    if not is_same:
        raise CertificateInvalid("The fields beside the JWS differ from its statement.")
    return verdict
