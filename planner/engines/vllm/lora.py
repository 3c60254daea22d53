"""vLLM's LoRA slots: for each linear layer, A and B of `max_loras` adapters at the largest rank, taken when the model is loaded.

vLLM lora/layers/base_linear.py, column_parallel_linear.py, row_parallel_linear.py (create_lora_weights), logits_processor.py,
vocal_parallel_embedding.py of the public repository; read, not run. Without fully sharded LoRA, A of a layer split by outputs is on every
rank, and B of one split by inputs; merged projections (q, k, v; gate, up) have an A and a B each.
"""

from __future__ import annotations

from planner.engines.settings import LedgerLine, Setting
from planner.errors import InvalidInput, UnsupportedModel
from planner.model import ModelSpec, Weight
from planner.notes import cite
from planner.scenario import Scenario

SOURCE = cite("vLLM lora/layers/base_linear.py, logits_processor.py (read)")
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # config/lora.py MaxLoRARanks
COLUMN = frozenset(("q_proj", "k_proj", "v_proj", "mlp.gate", "mlp.up"))  # split by outputs
ROW = frozenset(("o_proj", "mlp.down"))  # split by inputs
VOCABULARY_PADDING = 256  # lora/layers/logits_processor.py


def line(model: ModelSpec, s: Scenario, setting: Setting, stage: int) -> tuple[LedgerLine, ...]:
    """The slots of one rank of a pipeline stage; none without `max_loras`. Raises for ranks and layers that these rules do not cover.

    Band: without and with the slots of embedding and head, which some classes leave out (`embedding_modules`).
    """
    if not s.max_loras:
        return ()
    if s.max_lora_rank not in RANKS:
        raise InvalidInput("lora_rank", field="max_lora_rank", value=s.max_lora_rank, known=", ".join(map(str, RANKS)))
    p, values = setting.parallel, 0
    here = p.stage_layers(len(model.layers), model.drafts)[stage]
    for layer, where in model.layer_groups():
        n = sum(i in here for i in where)
        if n:
            values += n * sum(_values(w, s.max_lora_rank, p.attention_ranks if w.role == "attention" else p.tensor) for w in layer.weights)
    outer = 0
    vocabulary = -(-model.vocab_size // VOCABULARY_PADDING) * VOCABULARY_PADDING
    if stage == 0:
        outer += s.max_lora_rank * (model.vocab_size + model.hidden_size)
    if stage == p.pipeline - 1:
        outer += s.max_lora_rank * (vocabulary + model.hidden_size)
    low, size = (s.max_loras * setting.model_dtype.nbytes(v) for v in (values, values + outer))
    return (LedgerLine(code="lora", bytes=size, kind="assumed", source=SOURCE, low_bytes=low, high_bytes=size,
                       args=(("slots", s.max_loras), ("rank", s.max_lora_rank))),)  # fmt: skip


def _values(w: Weight, rank: int, ranks: int) -> int:
    """Values of A and B of one adapter of `w` on one of `ranks` ranks; biases and norms have none."""
    if len(w.shape) != 2 or w.role in ("norm", "position"):
        return 0
    if w.name not in COLUMN | ROW:
        raise UnsupportedModel("lora_layers", field="max_loras", weight=w.name)
    out, into = w.shape
    parts = w.parts or 1
    share = max(1, -(-parts // ranks))
    if w.name in COLUMN:
        return rank * (into + out // parts * share)
    return rank * (into // parts * share + out)
