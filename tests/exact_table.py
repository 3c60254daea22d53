"""The README's table of what is exact, counted anew: ``python -m tests.exact_table``. It needs the corpus (KVLEDGER_CORPUS)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.conftest import corpus_rows
from tests.planner.test_llamacpp_executed import wrong_rows
from tests.planner.test_sglang_executed import executed_rows as sglang_rows
from tests.planner.test_transformers import class_defaults, counted_parameters, derived_by_hand, measured_caches
from tests.planner.test_vllm import executed_rows as vllm_rows

TOKENS = 131_072
Counted = tuple[int, Sequence[str], Sequence[str]]
"""How many are right, which are wrong, which are refused."""


def _llamacpp() -> Counted:
    wrong = wrong_rows()
    return len(corpus_rows("llamacpp_executed.csv")) - len(wrong), wrong, ()


ROWS: tuple[tuple[str, Callable[[], Counted]], ...] = (
    (f"caches that transformers 5.24 was measured to hold at {TOKENS:,} tokens, real configs (cross caches apart)", lambda: measured_caches(TOKENS)),
    ("bytes a token of configs derived by hand", derived_by_hand),
    ("class defaults of causal model types", class_defaults),
    ("parameters of the models that transformers builds, real configs (refused: estimates)", counted_parameters),
    ("vLLM 0.33's own planner, executed plans", vllm_rows),
    ("SGLang 0.5.23's own sizing, executed plans (H100, A100, L4, B200)", lambda: sglang_rows()[:3]),
    ("llama.cpp contexts that were really allocated", _llamacpp),
)


def main() -> None:
    print("| against | exact | wrong | refused |\n|---|---:|---:|---:|")
    for name, counted in ROWS:
        right, wrong, refused = counted()
        print(f"| {name} | {right:,} | {len(wrong)} | {len(refused)} |")


if __name__ == "__main__":
    main()
