"""Read the certificate of a peer: its names, and the user that it logs in as.

A certificate comes in the form of `ssl.SSLObject.getpeercert()`, which is empty unless the
certificate was verified. So this module need not check whether a certificate can be trusted.
Distinguished names are written as RabbitMQ writes them (RFC 4514, the most specific part first),
because RabbitMQ uses them as user names.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

DISTINGUISHED_NAME: Final = "distinguished_name"
COMMON_NAME: Final = "common_name"

Certificate = Mapping[str, Any]

_SHORT_NAMES: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ALTERNATIVE_KINDS: Final = {"dns": "DNS", "email": "email", "uri": "URI", "ip": "IP Address"}
_SPECIAL: Final = '",+;<>\\'


@dataclass(frozen=True)
class NameRule:
    """The field of a certificate that names the user."""

    source: str = DISTINGUISHED_NAME  # or COMMON_NAME, or "subject_alternative_name"
    alternative_kind: str = "dns"

    def name_in(self, certificate: Certificate) -> str:
        """Return the user name, or an empty string if the certificate lacks that field."""
        if self.source == DISTINGUISHED_NAME:
            return distinguished_name(certificate.get("subject", ()))
        if self.source == COMMON_NAME:
            return ",".join(_values(certificate.get("subject", ()), "commonName"))
        wanted = _ALTERNATIVE_KINDS[self.alternative_kind]
        found = [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]
        return found[0] if found else ""


@dataclass(frozen=True)
class TlsPeer:
    """The TLS session of a peer. Names are empty if the peer showed no certificate."""

    version: str  # "TLSv1.3"
    cipher: str
    offers_external: bool  # certificates are verified, so EXTERNAL logins are possible
    login_name: str = ""  # the user that the certificate names
    subject: str = ""
    issuer: str = ""
    validity: str = ""
    serial_number: str = ""

    def facts(self) -> dict[str, str]:
        """Return the fields of RabbitMQ's management API, without their prefix `ssl_`."""
        key_exchange, cipher, digest = _suite(self.cipher)
        found = {
            "protocol": self.version.lower(),
            "key_exchange": key_exchange,
            "cipher": cipher,
            "hash": digest,
            "peer_cert_subject": self.subject,
            "peer_cert_issuer": self.issuer,
            "peer_cert_validity": self.validity,
        }
        return {name: text for name, text in found.items() if text}


def _suite(name: str) -> tuple[str, str, str]:
    """Split TLS_AES_256_GCM_SHA384 or ECDHE-RSA-AES256-GCM-SHA384: key exchange, cipher, hash."""
    if name.startswith("TLS_"):  # TLS 1.3: the suite does not name the key exchange
        cipher, _, digest = name.removeprefix("TLS_").lower().rpartition("_")
        return "any", cipher, digest
    parts = name.lower().split("-")
    digest = parts.pop() if parts[-1].startswith("sha") else "aead"
    at = next((i for i, part in enumerate(parts) if part.startswith(("aes", "chacha"))), 0)
    return "_".join(parts[:at]), "_".join(parts[at:]), digest


def tls_peer(secured: ssl.SSLObject, rule: NameRule | None) -> TlsPeer:
    """Return the facts of a TLS session. Without a rule, the certificate is ignored."""
    certificate: Certificate = (secured.getpeercert() if rule is not None else None) or {}
    cipher = secured.cipher()
    return TlsPeer(
        version=secured.version() or "",
        cipher=cipher[0] if cipher is not None else "",
        offers_external=rule is not None,
        login_name=rule.name_in(certificate) if rule is not None else "",
        subject=distinguished_name(certificate.get("subject", ())),
        issuer=distinguished_name(certificate.get("issuer", ())),
        validity=_validity(certificate),
        serial_number=certificate.get("serialNumber", ""),
    )


def distinguished_name(parts: Any) -> str:
    """Return a name in the form of RFC 4514, as RabbitMQ writes it."""
    written = ["+".join(f"{_short(key)}={_escaped(value)}" for key, value in p) for p in parts]
    return ",".join(reversed(written))


def _values(parts: Any, wanted: str) -> list[str]:
    return [value for part in parts for key, value in part if key == wanted]


def _short(key: str) -> str:
    return _SHORT_NAMES.get(key, key)


def _escaped(value: str) -> str:
    escaped = "".join(map(_escaped_character, value))
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return "\\" + escaped if escaped[:1] in (" ", "#") else escaped


def _escaped_character(character: str) -> str:
    if character in _SPECIAL:
        return "\\" + character
    if " " <= character < "~":
        return character
    return "".join(f"\\{octet:02X}" for octet in character.encode("utf-8", "surrogateescape"))


def _validity(certificate: Certificate) -> str:
    if not certificate:
        return ""
    return f"{_time(certificate['notBefore'])} - {_time(certificate['notAfter'])}"


def _time(text: str) -> str:
    moment = datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
