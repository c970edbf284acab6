"""What the control plane shows of several workers: the same whichever of them is asked, and which one that was."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.control import Snapshot
from proxy.gateway import Gateway
from proxy.metrics import Figures, Metrics, merge, page
from proxy.showing import RECENT, Showing
from proxy.workers_channel import FIGURES, FIGURES_DECODER, STATE
from proxy.workers_link import Part, Siblings

_OWN, _PEERS, _HEARD = "draftlane_backend_in_flight", "draftlane_backend_peer_in_flight", "draftlane_peers"


class ShowingTogether(Showing):
    """``Showing`` for a worker: counts are those of all, what is learnt is as this one knows it."""

    def __init__(self, gateway: Gateway, metrics: Metrics, admin_key_hash: bytes | None, siblings: Siblings) -> None:
        super().__init__(gateway, metrics, admin_key_hash)
        self._siblings = siblings

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The metrics page of all workers."""
        own = await self._figures()
        parts = await self._siblings.gather(FIGURES, packed_figures(own))
        return await asyncio.to_thread(_page, own, parts, accept)

    async def state(self) -> Snapshot:
        """Everything this worker knows, and the requests of all: ``recent``, ``live``."""
        state = self.snapshot()
        parts = await self._siblings.gather(STATE, _packed(self._brief(state)))
        briefs = [self._brief(state), *(msgspec.msgpack.decode(part) for part in parts)]
        recent = [outcome for brief in briefs for outcome in brief["recent"]]
        recent.sort(key=lambda outcome: outcome.get("at", 0.0), reverse=True)
        workers = sorted(
            ({"worker": one["worker"], "live": one["live"]} for one in briefs), key=lambda one: one["worker"]
        )
        return state | {
            "recent": recent[:RECENT],
            "live": sum(one["live"] for one in workers),
            "worker": self._siblings.worker,
            "workers": workers,
        }

    def parts(self) -> Mapping[str, Part]:
        """See ``Showing``."""
        return {FIGURES: self._figures_part, STATE: self._state_part}

    async def _figures(self) -> Figures:
        return await asyncio.to_thread(self._metrics.export, self.snapshot())

    async def _figures_part(self) -> bytes:
        return packed_figures(await self._figures())

    async def _state_part(self) -> bytes:
        return _packed(self._brief(self.snapshot()))

    def _brief(self, state: Snapshot) -> dict[str, Any]:
        return {"worker": self._siblings.worker, "live": state["live"], "recent": state["recent"]}


_packed = msgspec.msgpack.Encoder().encode


def packed_figures(figures: Figures) -> bytes:
    """Figures as they travel: flags become numbers, as on the page."""
    numbers = {
        name: {labels: figure if isinstance(figure, tuple) else float(figure) for labels, figure in samples.items()}
        for name, samples in figures.items()
    }
    return _packed(numbers)


def _page(own: Figures, parts: list[bytes], accept: str) -> tuple[bytes, str]:
    shown = page(together([own, *map(FIGURES_DECODER.decode, parts)]), accept)
    return shown.body, shown.content_type


def together(figures: list[Figures]) -> Figures:
    """The figures of all workers; the first one answers for what all of them know.

    To a worker its siblings are peers. To the reader of the page they are this replica, so they are taken off the peers.
    """
    merged = merge(figures)
    ours, alone = merged.get(_OWN, {}), figures[0].get(_OWN, {})
    for labels, peers in merged.get(_PEERS, {}).items():
        siblings = _number(ours.get(labels)) - _number(alone.get(labels))
        merged[_PEERS][labels] = max(0.0, _number(peers) - siblings)
    if () in merged.get(_HEARD, {}):
        siblings = sum(_HEARD in one for one in figures) - 1
        merged[_HEARD][()] = max(0.0, _number(merged[_HEARD][()]) - siblings)
    return merged


def _number(figure: object) -> float:
    return float(figure) if isinstance(figure, (int, float)) else 0.0
