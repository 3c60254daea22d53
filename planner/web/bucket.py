"""A rate per address: a bucket that holds a minute's requests and fills evenly. Addresses are kept in memory, a bounded number of them."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_ADDRESSES = 10_000


class Buckets:
    """`per_minute` 0: no limit. Of more addresses than are kept, the one that was seen longest ago starts anew."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self.clock = per_minute, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> (requests left, when)

    def wait_s(self, address: str) -> int:
        """Takes one request: 0, or the whole seconds until there is one again."""
        if not self.per_minute:
            return 0
        now = self.clock()
        left, then = self._left.pop(address, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - then) * self.per_minute / 60)
        taken = left >= 1
        self._left[address] = (left - taken, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return 0 if taken else max(1, math.ceil((1 - left) * 60 / self.per_minute))


def address_of(peer: str, forwarded: str, proxies: int) -> str:
    """Who asks: the peer, or behind `proxies` trusted proxies what the outermost of them saw (X-Forwarded-For, from the right).

    >>> address_of("10.0.0.1", "6.6.6.6, 203.0.113.9", 1)
    '203.0.113.9'
    """
    seen = [part.strip() for part in forwarded.split(",") if part.strip()]
    return seen[-proxies][:64] if 0 < proxies <= len(seen) else peer
