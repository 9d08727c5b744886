"""Why a node could not connect to another one, as a sentence for an operator."""

import ssl

from leveret.cluster.errors import ClusterError, LinkRefusedError
from leveret.cluster.handshake import WELCOME
from leveret.cluster.link import Link
from leveret.cluster.peers import Address
from leveret.errors import system_reason


def why_unreached(who: str, fault: Exception, *, uses_tls: bool) -> str:
    """Return why no connection could be made to `who`, a node or its address."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return (
            f"{who} shows a certificate that is refused ({fault.verify_message}): renew it, or "
            "correct --tls-ca of this node"
        )
    reason = system_reason(fault)
    if uses_tls and isinstance(fault, ssl.SSLError | ConnectionResetError):
        reason += " (TLS failed: use --cluster-tls on all nodes or on none)"
    return f"{who} cannot be reached: {reason}"


def why_not_trusted(name: str, peer: str, fault: Exception) -> str:
    """Return why a node refuses the certificate of another; empty if that is not the fault."""
    if not isinstance(fault, ssl.SSLCertVerificationError):
        return ""
    return (
        f"node {name} refuses the certificate of node {peer} ({fault.verify_message}): renew it, "
        f"or correct --tls-ca of node {name}"
    )


def why_not_open(link: Link, address: Address) -> ClusterError:
    """Return why a relay could not be opened, though the address accepts connections."""
    if link.refusal == WELCOME:
        return ClusterError(f"node {link.peer} at {address} cannot be reached: {link.reason}")
    return LinkRefusedError(link.refusal, link.reason, by_peer=True)
