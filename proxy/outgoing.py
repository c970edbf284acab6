"""What goes to a backend: the client's own bytes, but for the few that have to be others there."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.backends import Backend
    from proxy.relay import Relay

NOTHING: frozenset[bytes] = frozenset()
CODING: Final = frozenset((b"content-encoding",))
NEGOTIATION: Final = frozenset((b"accept-encoding",))


def outgoing(relay: "Relay", backend: "Backend") -> tuple[bytes, bytes, bool]:
    """Head and body to send, and whether that asks for usage which the client does not expect in its answer."""
    gateway, head = relay.gateway, relay.inbound.head
    body, dropped, injected = _body(relay, backend)
    lines = [gateway.onward(head, backend, dropped), gateway.added_lines(relay)]
    if body or head.method not in (b"GET", b"HEAD"):
        lines.append(b"content-length: %d\r\n" % len(body))
    lines.append(b"\r\n")
    return b"".join(lines), body, injected


def _body(relay: "Relay", backend: "Backend") -> tuple[bytes, frozenset[bytes], bool]:
    """The body, the client's headers that no longer fit it, and as above."""
    asked, body, plain = relay.asked, relay.inbound.body(), relay.decoded
    inject = asked.stream and not asked.wants_usage and backend.takes_usage and relay.surface.routed
    model = relay.gateway.models.name_at(backend, asked.model)
    if not inject and model is None:
        return body, NOTHING, False
    dropped = NOTHING if plain is None else CODING
    if inject:  # a compressed answer could not have our usage event taken out again
        dropped |= NEGOTIATION
    return relay.surface.splice(body if plain is None else plain, asked, model, inject), dropped, inject
