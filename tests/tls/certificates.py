"""A certificate authority for tests: certificates for brokers and clients of one test run."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class TestAuthority:
    """Signs certificates into a folder."""

    __test__ = False

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._made = 0
        signed = self._sign(self._name, self._key.public_key(), [], is_authority=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "localhost") -> Pair:
        """For a broker on this machine."""
        here = ipaddress.ip_address("127.0.0.1")
        return self.pair([(NameOID.COMMON_NAME, name)], [x509.DNSName(name), x509.IPAddress(here)])

    def pair(
        self,
        subject: list[tuple[x509.ObjectIdentifier, str]],
        alternatives: list[x509.GeneralName] | None = None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(kind, value) for kind, value in subject])
        signed = self._sign(name, key.public_key(), alternatives or [], is_authority=False)
        self._made += 1
        pair = Pair(self._folder / f"{self._made}.pem", self._folder / f"{self._made}.key")
        pair.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(private_pem(key))
        return pair

    def client_context(self, pair: Pair | None = None) -> ssl.SSLContext:
        """For a client that trusts this authority and may have a certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context

    def _sign(
        self,
        name: x509.Name,
        public: ec.EllipticCurvePublicKey,
        alternatives: list[x509.GeneralName],
        *,
        is_authority: bool,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGIN)
            .not_valid_after(_END)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if is_authority:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if alternatives:
            names = x509.SubjectAlternativeName(alternatives)
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
