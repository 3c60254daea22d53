"""Ranks: how layers, heads and requests are spread. No engine rules here beyond what all engines share."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Degrees of one replica. `attention_data`: data-parallel attention inside the tensor ranks (each attention group of
    ``tensor / attention_data`` ranks serves its own requests). `expert`: ranks over which whole experts are spread.
    `context`: decode context parallel ranks inside the tensor ranks, which share out the tokens of one cache. `remainder_first`: layers that
    do not divide go to the first stages, one each (TensorRT-LLM mapping.py pp_layers: torch.tensor_split)."""

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert: int = 1
    context: int = 1
    remainder_first: bool = False

    def __post_init__(self) -> None:
        for name, value in (("tp", self.tensor), ("pp", self.pipeline), ("dp_attention", self.attention_data), ("ep", self.expert), ("dcp", self.context)):
            if not 1 <= value <= 4096:
                raise InvalidInput("out_of_range", field=name, value=value, low=1, high=4096)
        if self.tensor % self.attention_data:
            raise InvalidInput("degree_not_dividing", field="dp_attention", value=self.attention_data, whole=self.tensor, name="tp")
        if self.attention_ranks % self.context:
            raise InvalidInput("degree_not_dividing", field="dcp", value=self.context, whole=self.attention_ranks, name="tp")
        if self.tensor % self.expert and self.expert % self.tensor:
            raise InvalidInput("degree_not_dividing", field="ep", value=self.expert, whole=self.tensor, name="tp")

    @property
    def attention_ranks(self) -> int:
        return self.tensor // self.attention_data

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline

    def heads_on_rank(self, heads: int) -> int:
        """KV heads that one rank keeps: ``max(1, heads / ranks)``; with more ranks than heads each head is kept several times."""
        return max(1, heads // self.attention_ranks)

    def spread(self, sequences: int) -> list[int]:
        """Sequences on each tensor rank of a stage: data-parallel attention groups take them in turn, the others all hold every one."""
        each, rest = divmod(sequences, self.attention_data)
        return [each + (rank // self.attention_ranks < rest) for rank in range(self.tensor)]

    def stage_layers(self, layers: int, drafts: int = 0) -> tuple[range, ...]:
        """The layers of each pipeline stage. The remainder goes to stages from the second-last backwards, never first to the last
        (vLLM 0.33 distributed/utils.py: 61 layers over 4 stages are 15, 15, 16, 15). The last `drafts` of `layers` are draft layers:
        they stand on the last stage and count for no share."""
        layers -= drafts
        if layers < self.pipeline:
            raise InvalidInput("more_stages_than_layers", field="pp", value=self.pipeline, layers=layers)
        each, rest = divmod(layers, self.pipeline)
        sizes = [each] * self.pipeline
        for k in range(rest):
            sizes[k if self.remainder_first else (self.pipeline - 2 - k) % self.pipeline] += 1
        out, start = [], 0
        for size in sizes:
            out.append(range(start, start + size))
            start += size
        out[-1] = range(out[-1].start, start + drafts)
        return tuple(out)
