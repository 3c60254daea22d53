"""The activation peak that vLLM measures at start-up: one forward pass of T tokens, then the sampler over S rows of logits.

What stands at the peak was read from the wheels of 0.11 to 0.33 (v1/worker/gpu_model_runner.py profile_run, v1/worker/gpu/model_runner.py,
v1/sample/sampler.py, model_executor/layers/fused_moe/). All terms are bytes of one rank; T batched tokens, S sequences, H hidden width,
I feed-forward width, V vocabulary, e bytes an element. Only `BASE` and the sort's temporaries are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines.settings import Setting
from planner.engines.vllm.versions import rules_of, runner
from planner.model import Mlp, ModelSpec
from planner.units import MIB

# Workspaces of cuBLAS (32 MiB on Hopper, 8 elsewhere: torch's defaults), small buffers; fitted on the first half of the log rows.
BASE_MIB = {True: 46, False: 22}
# Bytes an element of S x V at the sampler's peak: logits in e bytes, their fp32 copy, and by the filter:
# sort: sorted values, indices, probabilities and the sort's own temporaries (38 in all, fitted; four logs of 0.11 and 0.15: 37.96 to 38.18)
# triton, flashinfer: probabilities and one draw of noise of the same shape, 4 bytes each
FILTERED = {"sort": 32.0, "triton": 8.0, "flashinfer": 8.0}
# Multiprocessors, each with one row of V in fp32 for Triton's filter (topk_topp_triton.py). By compute capability; the largest of a family.
PROCESSORS = {(7, 5): 40, (8, 0): 108, (8, 6): 84, (8, 9): 142, (9, 0): 132, (10, 0): 148, (10, 3): 160, (12, 0): 188, (12, 1): 48}
# Tokens of the largest image where it is more than a batch (the families' preprocessor files: 12.8 and 16.8 million pixels).
LARGEST_IMAGE = {"qwen2_vl": 16_384, "qwen2_5_vl": 16_384, "qwen3_vl": 16_384, "qwen3_vl_moe": 16_384, "qwen3_5": 16_384, "qwen3_5_moe": 16_384}
LATENT_TOKENS = 65_536  # the chunk of MLA's prefill that the profile stands in for (mla_attention.py)
SMALL_BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """`forward`, `sampler`: the two peaks, of which the larger counts; `held`: what stays through both (hidden states, experts' workspace,
    images); `workspace`: of it, the experts'; `images`: of it, the images'."""

    forward: int
    sampler: int
    workspace: int
    images: int
    held: int

    @property
    def bytes(self) -> int:
        return max(self.forward, self.sampler) + self.held


def batch(setting: Setting) -> tuple[int, int]:
    """(T, S) of the profiling run: never more tokens than all sequences can have, nor more sequences than tokens."""
    tokens = min(setting.max_num_batched_tokens, setting.max_model_len * setting.max_num_seqs)
    return tokens, min(setting.max_num_seqs, tokens)


def peak(model: ModelSpec, setting: Setting) -> Peak:
    """Of the last pipeline stage, which runs the sampler."""
    tokens, sequences = batch(setting)
    rules, _ = rules_of(setting.asked_version)
    e = setting.model_dtype.nbytes(1)
    hopper = setting.capability is None or setting.capability[0] >= 9
    hidden = tokens * model.hidden_size * e
    shown = max(tokens, LARGEST_IMAGE.get(model.model_type, 0))
    images = _images(model, shown, e)
    workspace = max((experts_workspace(m, model, setting, tokens) for layer, _ in model.layer_groups() if (m := layer.mlp)), default=0)
    held = hidden + images + BASE_MIB[hopper] * MIB
    if setting.parallel.pipeline > 1:
        held += 2 * hidden  # hidden states and residual that come from the stage before
    forward = _forward(model, setting, tokens, e)
    if rules.workspace_kept:
        held += workspace
    else:
        forward = max(forward, 4 * hidden + workspace)
    sampler = round(sequences * model.vocab_size * _bytes_an_element(model, setting, rules.sampler, e))
    if rules.sampler == "triton":
        sampler += min(PROCESSORS.get(setting.capability or (9, 0), 132), sequences) * model.vocab_size * 4
    return Peak(forward=max(forward, _tower(model, shown, e)), sampler=sampler, workspace=workspace, images=images, held=held)


def _bytes_an_element(model: ModelSpec, setting: Setting, sampler: str, e: int) -> float:
    """Runner 2 samples by Gumbel noise inside a kernel: no probabilities, unless its warm-up filters."""
    generation, _, filters = runner(model, setting.asked_version)
    return e + 4 + FILTERED[sampler] if generation == 1 or filters else e + 12 / 1024


def _forward(model: ModelSpec, setting: Setting, tokens: int, e: int) -> int:
    """Between two attentions at once: gate, up and their product (3 I), and four hidden states. Where int8 or fp8 codes of the product are
    made, they stand beside it. MLA: its largest prefill chunk expanded to heads."""
    ranks = setting.parallel.tensor
    width = max((m.width or m.shared_width for layer, _ in model.layer_groups() if (m := layer.mlp)), default=4 * model.hidden_size)
    codes = 1 if model.quantization in ("compressed-tensors", "fp8", "modelopt", "fbgemm_fp8") else 0
    dense = tokens * (width * (3 * e + codes) // ranks + 3 * model.hidden_size * e)
    latent = 0
    for layer, _ in model.layer_groups():
        a = layer.attention
        if a and a.kv_rank:
            rows = min(max(8 * setting.max_model_len, 4 * setting.max_num_seqs * SMALL_BLOCK), LATENT_TOKENS)
            latent = max(latent, rows * max(1, a.q_heads // setting.parallel.attention_ranks) * (a.nope_dim + a.v_dim) * e)
    return max(dense, latent)


def experts_workspace(m: Mlp, model: ModelSpec, setting: Setting, tokens: int) -> int:
    """``T k (max(I, H) + max(2 I, H)) e`` (fused_moe.py TritonExperts.workspace_shapes). gpt-oss on Hopper has kernels that need none."""
    if not m.experts or (model.model_type == "gpt_oss" and setting.capability is not None and setting.capability[0] == 9):
        return 0
    p = setting.parallel
    width = m.expert_width if p.expert > 1 else -(-m.expert_width // p.tensor)
    return tokens * m.top_k * (max(width, model.hidden_size) + max(2 * width if m.gated else width, model.hidden_size)) * setting.model_dtype.nbytes(1)


def _images(model: ModelSpec, tokens: int, e: int) -> int:
    """Profiled with as many images as fill the batch: their pixels and what the tower made of them stay until the end of the run."""
    part = model.server.images
    return tokens * (3 * part.pixels_per_token + model.hidden_size) * e if part and part.pixels_per_token else 0


def _tower(model: ModelSpec, tokens: int, e: int) -> int:
    """The tower's own peak over the patches of that batch: a feed-forward layer and five hidden states."""
    part = model.server.images
    if not (part and part.pixels_per_token and part.patch and part.width):
        return 0
    return tokens * part.pixels_per_token // part.patch**2 * (2 * (part.feed or 4 * part.width) + 5 * part.width) * e


def sampler_state(model: ModelSpec, setting: Setting) -> int:
    """Runner 2 keeps counts of every token of the vocabulary for every sequence, for penalties (v1/worker/gpu/sample/penalties.py): 4 bytes
    and one bit an element."""
    generation, _, _ = runner(model, setting.asked_version)
    return setting.max_num_seqs * (4 * model.vocab_size + 4 * -(-model.vocab_size // 32)) if generation == 2 else 0
