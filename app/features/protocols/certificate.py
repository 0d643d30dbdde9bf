"""X.509 certificate and signatures of OpenDSR answers and callbacks (RSA PKCS #1 v1.5 over SHA-256)."""

import base64
import datetime
import functools
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.x509.oid import NameOID

from app.config import Settings
from app.errors import SigningUnusable
from app.keys import read_or_create

_BITS = 3072
_LIFETIME = datetime.timedelta(days=3650)
_CLOCKS_DIFFER_BY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer:
    """Processor's domain, its certificate chain (PEM), and its key."""

    domain: str
    certificate: str
    key: RSAPrivateKey = field(repr=False)

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the headers of an answer or a callback with exactly this body."""
        signature = self.key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        return {
            "X-OpenDSR-Processor-Domain": self.domain,
            "X-OpenDSR-Signature": base64.b64encode(signature).decode(),
        }


def signer(settings: Settings) -> Signer:
    """Return the signer of the settings, or one with a self-signed certificate that is created at its first use.

    Raises `SigningUnusable`, `OSError`.
    """
    return _signer(
        settings.data_dir / "keys",
        settings.resolved_opendsr_domain(),
        settings.opendsr_certificate_file,
        settings.opendsr_key_file,
    )


@functools.lru_cache
def _signer(folder: Path, domain: str, certificate_file: Path | None, key_file: Path | None) -> Signer:
    if certificate_file is not None and key_file is not None:
        certificate, key_text = certificate_file.read_text(), key_file.read_text()
    elif certificate_file is None and key_file is None:
        key_text = read_or_create(folder / "opendsr.key", _new_key)
        certificate = read_or_create(folder / f"opendsr-{domain}.pem", lambda: _self_signed(_key(key_text), domain))
    else:
        raise SigningUnusable("Set both LETHE_OPENDSR_CERTIFICATE_FILE and LETHE_OPENDSR_KEY_FILE, or neither.")
    key = _key(key_text)
    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError as error:
        raise SigningUnusable("Expected certificates in PEM in LETHE_OPENDSR_CERTIFICATE_FILE.") from error
    if first.public_key() != key.public_key():
        raise SigningUnusable("Expected the key of the first certificate in LETHE_OPENDSR_KEY_FILE.")
    if not _is_for(first, domain):
        raise SigningUnusable("Expected a certificate that is for LETHE_OPENDSR_DOMAIN.")
    return Signer(domain=domain, certificate=certificate.strip() + "\n", key=key)


def _key(text: str) -> RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise SigningUnusable("Expected a PEM key without a password in LETHE_OPENDSR_KEY_FILE.") from error
    if not isinstance(key, RSAPrivateKey):
        raise SigningUnusable("Expected an RSA key in LETHE_OPENDSR_KEY_FILE.")
    return key


def _new_key() -> str:
    return (
        rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        .private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        .decode()
    )


def _self_signed(key: RSAPrivateKey, domain: str) -> str:
    at = datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain[:64])])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _CLOCKS_DIFFER_BY)
        .not_valid_after(at + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_name(domain)]), critical=False)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _is_for(certificate: x509.Certificate, domain: str) -> bool:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return any(name in names for name in (_name(domain), x509.DNSName("*." + domain.partition(".")[2])))


def _name(domain: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)
