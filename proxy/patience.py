"""When patience with a backend, or with a client, has run out."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from proxy.relay import Relay

AGED_SECONDS: Final = 1.0
"""A close that crosses the request on its way is seen a round trip later."""


def overdue(relay: "Relay", now: float) -> str | None:
    """The fault when the backend has said nothing for too long."""
    timeouts = relay.gateway.config.timeouts
    if relay.done or relay.paused or relay.exchange is None:
        return None
    if relay.exchange.connection is None:  # it connects: a relay lets go of an exchange that is over
        return "connect-timeout" if now - relay.sent_at > timeouts.connect_seconds else None
    if not relay.inbound.started:
        return "head-timeout" if now - relay.sent_at > timeouts.first_byte_seconds else None
    return "idle-timeout" if now - relay.heard_at > timeouts.idle_seconds else None


def aged(relay: "Relay", now: float) -> bool:
    """A connection to the backend that closed unheard did so because the engine's keep-alive ran out while the request was
    written: it had only just gone out. Later it is the backend's failure."""
    return now - relay.sent_at < AGED_SECONDS


def unread(relay: "Relay", now: float) -> bool:
    """The client has taken nothing for so long that its place at the engine is better given to another."""
    return relay.paused and not relay.done and now - relay.heard_at > relay.gateway.config.timeouts.unread_seconds
