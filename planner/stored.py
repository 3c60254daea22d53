"""How one matrix lies in a checkpoint: its elements and the grids of scales, zero points and indices beside them. All bytes are ints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One `element` for every block of `rows` x `cols` of the matrix ``[out, in]``; 0 is the whole length. (0, 0) is one a matrix, (1, 0)
    one a row. An element of several numbers (a packed word) is packed along the rows."""

    rows: int
    cols: int
    element: DType

    def nbytes(self, out: int, into: int) -> int:
        down = -(-out // self.rows) if self.rows else 1
        across = -(-into // self.cols) if self.cols else 1
        return across * self.element.nbytes(down)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A quantized matrix. `packed`: the dimension along which elements share a word, the last word being filled up; flat: no matter.

    >>> int4 = Stored(name="int4", element=DType(name="int4", block_elements=8, block_bytes=4), packed="in",
    ...               grids=(Grid(rows=1, cols=128, element=DType(name="fp16", block_elements=1, block_bytes=2)),))
    >>> int4.nbytes((4096, 4096))  # 4096 x 512 words of 4 bytes, and 4096 x 32 scales of 2 bytes
    8650752
    """

    name: str
    element: DType
    packed: Literal["flat", "in", "out"] = "flat"
    grids: tuple[Grid, ...] = ()

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one tensor ``[..., out, in]``."""
        into, out = shape[-1], 1
        for n in shape[:-1]:
            out *= n
        if self.packed == "flat":
            own = self.element.nbytes(out * into)
        elif self.packed == "in":
            own = out * self.element.nbytes(into)
        else:
            own = into * self.element.nbytes(out)
        return own + sum(g.nbytes(out, into) for g in self.grids)
