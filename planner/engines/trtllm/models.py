"""TensorRT-LLM: the releases whose rules are told apart, and the model classes that its PyTorch backend has.

Read, not run: docs/source/models/supported-models.md, tensorrt_llm/plugin/plugin.py, llmapi/llm_args.py of the public repository.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.engines.shared import nearest, version_tuple
from planner.model import ModelSpec
from planner.notes import Note

VERSION = "1.2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`pytorch`: the PyTorch backend is the default (C++ engines before). `tokens_per_block`: by default. `whole_block_up`: the last block
    of the pool is rounded up. `prints_blocks`: the tokens of the log are those of whole blocks."""

    since: tuple[int, ...]
    pytorch: bool = True
    tokens_per_block: int = 32
    whole_block_up: bool = False
    prints_blocks: bool = True


# Newest first. 0.x: batch_manager/kvCacheManager.cpp (calculateMaxNumBlocks, ceilDiv), plugin.py (64 tokens a block); printed alike by
# three public start-up logs. 1.x: _torch/pyexecutor/resource_manager.py (calculate_max_num_blocks), llm_args.py (32).
RULES = (
    Rules(since=(1, 0)),
    Rules(since=(0, 8), pytorch=False, tokens_per_block=64, whole_block_up=True),
    Rules(since=(0, 0), pytorch=False, tokens_per_block=64, whole_block_up=True, prints_blocks=False),  # a log of 0.5
)
# docs/source/models/supported-models.md: classes of the PyTorch backend itself (those of AutoDeploy are not among them).
NATIVE = frozenset(
    """AfmoeForCausalLM BertForSequenceClassification Cohere2ForCausalLM DeciLMForCausalLM DeepseekV3ForCausalLM DeepseekV32ForCausalLM
    Exaone4ForCausalLM ExaoneMoEForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Glm4MoeForCausalLM GlmMoeDsaForCausalLM
    GptOssForCausalLM HCXVisionForCausalLM KimiK25ForConditionalGeneration LlamaForCausalLM Llama4ForConditionalGeneration LlavaLlamaModel
    LlavaNextForConditionalGeneration Mistral3ForConditionalGeneration MistralForCausalLM MixtralForCausalLM NemotronForCausalLM
    NemotronHForCausalLM NemotronNASForCausalLM Phi3ForCausalLM Phi4MMForCausalLM Qwen2ForCausalLM Qwen2ForRewardModel
    Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration""".split()
)
# Hybrids whose states have a cache manager of their own (pyexecutor/_util.py: is_nemotron_hybrid, is_qwen3_next).
STATES = frozenset(("NemotronHForCausalLM", "Qwen3NextForCausalLM"))


def class_of(model: ModelSpec) -> str:
    return model.architecture or ""


def rules_of(asked: str | None) -> tuple[Rules, tuple[Note, ...]]:
    """(the rules of a release, notes); newer ones than are known, and releases between, are those of the nearest older one."""
    if not asked:
        return RULES[0], ()
    version = version_tuple(asked)
    rules = next(r for r in RULES if version[:2] >= r.since)
    same = version[:2] == version_tuple(VERSION)[:2]
    used = VERSION if rules is RULES[0] else "0.x"
    return rules, () if same else (nearest(asked, used, RULES.index(rules)),)
