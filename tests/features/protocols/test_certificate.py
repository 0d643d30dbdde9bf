"""The certificate that OpenDSR answers are signed under, given or generated."""

import base64
import datetime
import functools
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from app.config import Settings
from app.errors import SigningUnusable
from app.features.protocols import opendsr
from app.keys import read_or_create
from tests.tables import each

DOMAIN = "privacy.example.com"


@functools.cache
def key_of(name: str) -> RSAPrivateKey:
    """Return the RSA key with this name, which is generated on first use."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def pem(key: RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    ).decode()


def issued(key: RSAPrivateKey, *domains: str) -> str:
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "An authority")])
    at = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(at).not_valid_after(at + datetime.timedelta(days=1))
    if domains:
        names = x509.SubjectAlternativeName([x509.DNSName(domain) for domain in domains])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def given(folder: Path, certificates: str | None, key: str | None) -> Settings:
    """Return settings that name files with the given certificates and key."""
    settings = Settings(data_dir=folder, opendsr_domain=DOMAIN)
    if certificates is not None:
        settings.opendsr_certificate_file = folder / "given.pem"
        settings.opendsr_certificate_file.write_text(certificates)
    if key is not None:
        settings.opendsr_key_file = folder / "given.key"
        settings.opendsr_key_file.write_text(key)
    return settings


@pytest.mark.slow
def test_a_missing_certificate_is_generated_once(tmp_path: Path) -> None:
    """If no certificate is given, one is generated for the domain. It can only be used for signing, is the same for
    every process, and its key can be read only by the owner of the file."""
    for domain in (DOMAIN, "127.0.0.1"):
        settings = Settings(data_dir=tmp_path, host=domain)
        signer = opendsr.signer(settings)
        opendsr._signer.cache_clear()
        assert opendsr.signer(settings).certificate == signer.certificate
        made = x509.load_pem_x509_certificate(signer.certificate.encode())
        [name] = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert str(name.value) == domain
        usage = made.extensions.get_extension_for_class(x509.KeyUsage).value
        assert usage.digital_signature
        assert not usage.key_cert_sign
        assert made.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3000)
    assert stat.S_IMODE((tmp_path / "keys" / "opendsr.key").stat().st_mode) == 0o600


def test_a_signature_verifies_under_the_certificate(tmp_path: Path, signing_key: str) -> None:
    """The headers contain the domain and an RSA signature over the SHA-256 of the unchanged body."""
    read_or_create(tmp_path / "keys" / "opendsr.key", lambda: signing_key)
    signer = opendsr.signer(Settings(data_dir=tmp_path, host=DOMAIN))
    headers = signer.headers(b"body")
    assert headers["X-OpenDSR-Processor-Domain"] == DOMAIN
    key = x509.load_pem_x509_certificate(signer.certificate.encode()).public_key()
    assert isinstance(key, RSAPublicKey)
    key.verify(base64.b64decode(headers["X-OpenDSR-Signature"]), b"body", padding.PKCS1v15(), hashes.SHA256())


@pytest.mark.parametrize("name", [DOMAIN, "*.example.com"])
def test_a_given_certificate_is_used(tmp_path: Path, name: str) -> None:
    """A given certificate is used with its chain and key. A wildcard certificate that covers the domain is accepted
    too."""
    chain = issued(key_of("ours"), "other.example.org", name) + issued(key_of("another"))
    signer = opendsr.signer(given(tmp_path, chain, pem(key_of("ours"))))
    assert (signer.certificate, signer.key.private_numbers()) == (chain, key_of("ours").private_numbers())
    assert not (tmp_path / "keys").exists()


@each(
    ("certificates", "key"),
    lambda: [
        (issued(key_of("ours"), DOMAIN), None),
        (None, pem(key_of("ours"))),
        ("not a certificate", pem(key_of("ours"))),
        (issued(key_of("ours"), DOMAIN), "not a key"),
        (issued(key_of("ours"), DOMAIN), pem(ec.generate_private_key(ec.SECP256R1()))),
        (issued(key_of("ours"), DOMAIN), pem(key_of("another"))),
        (issued(key_of("ours"), "other.example.com"), pem(key_of("ours"))),
        (issued(key_of("ours")), pem(key_of("ours"))),
    ],
)
def test_a_mismatched_certificate_is_refused(tmp_path: Path, certificates: str | None, key: str | None) -> None:
    """A certificate that does not match its key is refused, because the resulting signatures could not be verified."""
    with pytest.raises(SigningUnusable):
        opendsr.signer(given(tmp_path, certificates, key))
