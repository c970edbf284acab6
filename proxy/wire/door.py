"""What the server side asks of the gateway."""

from typing import Protocol

from proxy.errors import GatewayError
from proxy.surfaces.base import Surface
from proxy.wire.inbound import Inbound


class Door(Protocol):
    """Lets requests in, or turns them away."""

    max_body_bytes: int
    max_header_bytes: int

    def surface_at(self, method: bytes, path: bytes) -> Surface | None:
        """The surface that serves this; None for the control plane."""

    def refuse_early(self, inbound: Inbound, length: int | None) -> GatewayError | None:
        """A reason to turn the request down before its body is read (key, size)."""

    def refused(self, inbound: Inbound, error: GatewayError) -> None:
        """The request is turned down and will not ``enter``."""

    def enter(self, inbound: Inbound, surface: Surface) -> None:
        """The request is complete: work on it."""

    def error_lines(self, inbound: Inbound) -> list[bytes]:
        """Header lines for answers of our own (request id, CORS)."""


def too_large(limit: int) -> GatewayError:
    """413 with the limit, so that the client knows what would pass."""
    return GatewayError("too_large", f"The request body is larger than this gateway's limit of {limit} bytes.")
