"""Names in certificates: RabbitMQ's form, and the names that are logins."""

import pytest

from leveret.auth.certificates import NameRule, TlsPeer, distinguished_name

CERTIFICATE = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Hare, Inc"),),
        (("commonName", "client"), ("userId", "7")),
        (("commonName", "second"),),
    ),
    "subjectAltName": (
        ("email", "hare@field"),
        ("DNS", "a.field"),
        ("DNS", "b.field"),
        ("URI", "spiffe://field/hare"),
        ("IP Address", "10.0.0.7"),
    ),
}


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (NameRule(), r"CN=second,CN=client+UID=7,O=Hare\, Inc,C=DE"),
        (NameRule("common_name"), "client,second"),
        (NameRule("subject_alternative_name"), "a.field"),
        (NameRule("subject_alternative_name", "email"), "hare@field"),
        (NameRule("subject_alternative_name", "uri"), "spiffe://field/hare"),
        (NameRule("subject_alternative_name", "ip"), "10.0.0.7"),
    ],
)
def test_name_of_a_certificate(rule: NameRule, name: str) -> None:
    assert rule.name_in(CERTIFICATE) == name
    assert rule.name_in({}) == ""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "plain"),
        (' "+,;<>\\# ', '\\ \\"\\+\\,\\;\\<\\>\\\\#\\ '),
        ("#1", r"\#1"),
        ("Ö\n~", r"\C3\96\0A\7E"),
        (" ", r"\ "),
    ],
)
def test_special_characters_are_escaped(value: str, written: str) -> None:
    assert distinguished_name(((("commonName", value),),)) == f"CN={written}"


def test_attribute_without_a_short_name_keeps_its_own() -> None:
    assert distinguished_name(((("1.2.3.4", "x"),),)) == "1.2.3.4=x"


@pytest.mark.parametrize(
    ("suite", "parts"),
    [
        ("TLS_AES_256_GCM_SHA384", ("any", "aes_256_gcm", "sha384")),
        ("TLS_CHACHA20_POLY1305_SHA256", ("any", "chacha20_poly1305", "sha256")),
        ("ECDHE-RSA-AES256-GCM-SHA384", ("ecdhe_rsa", "aes256_gcm", "sha384")),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", ("ecdhe_ecdsa", "chacha20_poly1305", "aead")),
        ("AES128-SHA", ("", "aes128", "sha")),
    ],
)
def test_facts_of_a_peer(suite: str, parts: tuple[str, str, str]) -> None:
    facts = TlsPeer("TLSv1.3", suite, False, subject="CN=hare").facts()
    shown = tuple(facts.get(name, "") for name in ("key_exchange", "cipher", "hash"))
    assert shown == parts
    assert (facts["protocol"], facts["peer_cert_subject"]) == ("tlsv1.3", "CN=hare")
    assert "peer_cert_issuer" not in facts
