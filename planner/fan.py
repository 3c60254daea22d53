"""Several samples or beams of each sequence: copies that begin with the same prompt, and what of it an engine holds once.

vLLM 0.33 v1/engine/parallel_sampling.py (n child requests), entrypoints/llm.py beam_search (requests again, step by step); SGLang 0.5.23
srt/managers/tokenizer_manager.py (the prompt is cached first); TensorRT-LLM batch_manager/kvCacheManager.cpp calculateMaxBlockRequirements
(context blocks once, output blocks a beam); transformers 5.24 generation/utils.py _expand_inputs_for_generation (the batch is repeated).
"""

from __future__ import annotations

from dataclasses import replace

from planner.cache import Pool
from planner.engines.settings import Allocation, Setting
from planner.errors import InvalidInput, UnsupportedValue
from planner.notes import Note, cite, note
from planner.scenario import Scenario

SOURCE = cite("vLLM 0.33 v1/engine/parallel_sampling.py, SGLang 0.5.23 tokenizer_manager.py, TensorRT-LLM kvCacheManager.cpp (read)")


def copies(s: Scenario) -> int:
    """Samples or beams of each sequence. Raises InvalidInput for both."""
    if s.samples > 1 and s.beams > 1:
        raise InvalidInput("samples_and_beams", field="beams", samples=s.samples, beams=s.beams)
    return max(s.samples, s.beams)


def fanned(s: Scenario, setting: Setting, allocation: Allocation) -> tuple[Allocation, tuple[Note, ...]]:
    """The pools for sequences of several samples, and what is said about their prompt. Raises PlannerError for what an engine refuses."""
    n = copies(s)
    if n == 1:
        return allocation, ()
    name = "beams" if s.beams > 1 else "samples"
    pools = [p for stage in allocation.stages for p in stage]
    states = any(g.kind == "state" for p in pools for g in p.groups)
    if s.beams > 1 and setting.engine == "trtllm" and (states or len({p.name for p in pools}) > 1):  # both are refused there
        raise UnsupportedValue("option_not_covered", field="beams", value=s.beams, engine=setting.engine)
    prompt, notes = _prompt(s, setting, pools, name, n)
    stages = tuple(tuple(like(p, n, prompt) for p in stage) for stage in allocation.stages)
    return replace(allocation, stages=stages), notes


def like(pool: Pool, samples: int, prompt: int) -> Pool:
    """The pool for sequences of `samples` samples each, of whose first `prompt` tokens the whole units are held once."""
    return replace(pool, samples=samples, prompt=prompt)


def _prompt(s: Scenario, setting: Setting, pools: list[Pool], name: str, n: int) -> tuple[int, tuple[Note, ...]]:
    """(tokens that the samples share, notes). A beam's blocks are shared in TensorRT-LLM whether prefixes are cached or not."""
    always = setting.engine == "trtllm" and name == "beams"
    if not any(p.block_size for p in pools) or not (setting.prefix_caching or always):
        return 0, (note("info", "samples_apart", field=name, engine=setting.engine, copies=n, source=SOURCE),)
    if s.prompt is None:
        return 0, (note("assumed", "samples_no_prompt", field="prompt", copies=n),)
    return min(s.prompt, s.tokens), (note("assumed", "samples_share", field=name, copies=n, tokens=min(s.prompt, s.tokens), source=SOURCE),)
