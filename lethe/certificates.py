"""`client.certificates`: signed statements about people who were forgotten."""

from typing import Any

from lethe.arguments import checked
from lethe.contract import certificates
from lethe.contract.certificates import AbsenceOut, CertificateOut, CertificateVerdictOut
from lethe.contract.problems import CertificateInvalid
from lethe.http import AsyncHttp, Http
from lethe.methods import H, Resource, call, makes

Certificate = CertificateOut | AbsenceOut | str
"""As the gateway answers it, or its JWS."""


class _Certificates(Resource[H]):
    get = call(certificates.GET)
    public_keys = call(certificates.PUBLIC_KEYS)


class Certificates(_Certificates[Http]):
    @makes(certificates.VERIFY)
    def verify(
        self,
        certificate: Certificate,
        *,
        jwks: dict[str, Any] | None = None,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
    ) -> CertificateVerdictOut:
        """Check signature and numbers of a certificate: by the gateway, or, with the issuer's keys, here, without a
        call (see `lethe.verification`). Raises `CertificateInvalid`, also for a certificate that says otherwise than
        its JWS, and `CertificateBeyondLimits` for one that guarantees less of forgetting than the limits."""
        verdict = _verified_here(certificate, jwks, max_epsilon, max_delta)
        if verdict is None:
            verdict = self._http.call(certificates.VERIFY, given=_asked(certificate, max_epsilon, max_delta))
        return _says_so(certificate, verdict)


class AsyncCertificates(_Certificates[AsyncHttp]):
    @makes(certificates.VERIFY)
    async def verify(
        self,
        certificate: Certificate,
        *,
        jwks: dict[str, Any] | None = None,
        max_epsilon: float | None = None,
        max_delta: float | None = None,
    ) -> CertificateVerdictOut:
        """As `Certificates.verify`."""
        verdict = _verified_here(certificate, jwks, max_epsilon, max_delta)
        if verdict is None:
            verdict = await self._http.call(certificates.VERIFY, given=_asked(certificate, max_epsilon, max_delta))
        return _says_so(certificate, verdict)


def _jws(certificate: Certificate) -> str:
    return certificate if isinstance(certificate, str) else certificate.jws


def _asked(certificate: Certificate, max_epsilon: float | None, max_delta: float | None) -> certificates.CertificateIn:
    said = {"jws": _jws(certificate), "max_epsilon": max_epsilon, "max_delta": max_delta}
    return checked(certificates.CertificateIn, said)


def _verified_here(
    certificate: Certificate, jwks: dict[str, Any] | None, max_epsilon: float | None, max_delta: float | None
) -> CertificateVerdictOut | None:
    if jwks is None:
        return None
    from lethe import verification  # numpy and scipy, for those who need them

    return verification.verify(_jws(certificate), jwks, max_epsilon=max_epsilon, max_delta=max_delta)


def _says_so(certificate: Certificate, verdict: CertificateVerdictOut) -> CertificateVerdictOut:
    """Raises `CertificateInvalid` where what stands beside a JWS is not what it says."""
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
        raise CertificateInvalid("What stands beside the JWS is not what was signed.")
    return verdict
