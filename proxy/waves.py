"""Work done for many requests at once, stage by stage.

All of a request's work is more code and data than the inner caches of a processor hold. One request after the other, each
throws out what the next one needs; one stage after the other, for all requests that one turn of the event loop brought, most of
it is still there: the same work cost 29 % less at 64 connections (docs/speed.md).
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Wave(Generic[Item]):
    """Gathers items until the loop has heard every socket that has something to say, then has them worked on together."""

    __slots__ = ("_items", "_work")

    def __init__(self, work: Callable[[list[Item]], None]) -> None:
        self._work = work
        self._items: list[Item] = []

    def add(self, item: Item) -> None:
        """``item`` will be worked on before the loop listens to its sockets again, and after it wrote to them."""
        if not self._items:
            asyncio.get_running_loop().call_soon(self._break)
        self._items.append(item)

    def _break(self) -> None:
        items, self._items = self._items, []
        self._work(items)
