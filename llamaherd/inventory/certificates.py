"""Create and read certificates of the fleet's own CA. Callers pass the files' contents and the time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROOT_LIFE = timedelta(days=20 * 365)
"""The validity of the root. Clients must install a new one by hand."""
LIFE = timedelta(days=397)
"""The validity of a certificate. Apple accepts at most 825 days from any CA, browsers 398 days from public ones."""
RENEWED = LIFE / 3
"""The remaining validity at which a certificate is renewed."""
_SLOW_CLOCKS = timedelta(days=1)
"""A certificate is valid from this long ago: clocks differ between machines."""


class WrongPemError(ValueError):
    """A PEM text has the wrong content."""


def new_key() -> str:
    """Return a new private key in PEM: P-256, which every client supports."""
    return _pem_of_key(ec.generate_private_key(ec.SECP256R1()))


def root_for(key: str, now: datetime) -> str:
    """Return the root certificate of a CA with this key. Raise WrongPemError."""
    private = _key(key)
    name = _named(f"llamaherd, {now:%Y-%m-%d}")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    made = (
        _begun(name, name, private.public_key(), now, now + ROOT_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(private, hashes.SHA256())
    )
    return _pem(made)


def signed(root: str, key: str, name: str, names: Collection[str], now: datetime) -> str:
    """Return a certificate for names and addresses, signed by a CA, followed by its new private key.

    It expires no later than the CA. Raise WrongPemError.
    """
    issuer, own = _certificate(root), ec.generate_private_key(ec.SECP256R1())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(_key(key).public_key())
    made = (
        _begun(_named(name), issuer.subject, own.public_key(), now, min(now + LIFE, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general(names)), critical=False)
        .add_extension(authority, critical=False)
        .sign(_key(key), hashes.SHA256())
    )
    return _pem(made) + _pem_of_key(own)


def lasting(text: str, root: str, names: Collection[str], now: datetime) -> bool:
    """Return whether a certificate with its key is from this CA, for these names, and not about to expire."""
    try:
        made, issuer = _certificate(text), _certificate(root)
        own = _key(text).public_key() == made.public_key()
        made.verify_directly_issued_by(issuer)
        holds_for = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    # The last one that a CA signs ends with it, and can be made no longer.
    left = made.not_valid_after_utc - now >= RENEWED or made.not_valid_after_utc == issuer.not_valid_after_utc
    begun = made.not_valid_before_utc <= now < made.not_valid_after_utc
    return own and left and begun and set(holds_for) == set(_general(names))


def is_root_of(root: str, key: str) -> bool:
    """Return whether a root certificate belongs to a key. Raise WrongPemError."""
    return _certificate(root).public_key() == _key(key).public_key()


def fingerprint(text: str) -> str:
    """Return the SHA-256 fingerprint of a certificate, as other programs print it. Raise WrongPemError."""
    return _certificate(text).fingerprint(hashes.SHA256()).hex(":").upper()


def valid(text: str) -> tuple[datetime, datetime]:
    """Return from when and until when a certificate is valid. Raise WrongPemError."""
    made = _certificate(text)
    return made.not_valid_before_utc, made.not_valid_after_utc


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLOW_CLOCKS)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(names: Collection[str]) -> list[x509.GeneralName]:
    def each() -> Iterator[x509.GeneralName]:
        for name in names:
            try:
                yield x509.IPAddress(ip_address(name))
            except ValueError:
                yield x509.DNSName(name)

    return list(each())


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate(text: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise WrongPemError("it is no certificate in PEM") from None


def _key(text: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(text[max(text.find(_KEY_BEGINS), 0) :].encode(), password=None)
    except (ValueError, TypeError):
        raise WrongPemError("it is no private key in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise WrongPemError("it is a key of another kind than `herd gateway ca` makes")
    return key


_KEY_BEGINS = "-----BEGIN PRIVATE KEY-----"


def _pem(made: x509.Certificate) -> str:
    return made.public_bytes(serialization.Encoding.PEM).decode()


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
