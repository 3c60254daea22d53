"""How the pages are set where Streamlit's own settings do not reach: less air, tables that scroll within themselves, captions dark enough to
read, a phone's width."""

from __future__ import annotations

import time

import streamlit as st

FIRST_VIEW_S = 0.9
COLOURS = {"fits": "green", "tight": "orange", "no": "red"}
"""Of the states of a plan, beside their words."""

# A phone has two columns: inputs, folded parts and cards stand in pairs, so that the answer is seen before anything is scrolled.
_RULES = """
[data-testid='stMainBlockContainer'] {padding-top: 4rem; padding-bottom: 3rem}
[data-testid='stMarkdownContainer']:has(> table) {overflow-x: auto}
[data-testid='stMarkdownContainer'] :is(td, th) {padding: 0.25rem 0.6rem; font-size: 0.85rem}
[data-testid='stCaptionContainer'] {opacity: 0.8}
[data-testid='stMain'] :is(p, li, label, td, th, h1, h2, h3, h4) {word-break: keep-all; overflow-wrap: break-word}
.st-key-preview pre code {white-space: pre-wrap !important}
.st-key-presets button {min-height: 1.9rem}
.st-key-folded_inputs > :has(details[open]) {flex: 0 0 100% !important; width: 100% !important}
@media (max-width: 640px) {
  .st-key-page_head {flex-wrap: nowrap !important}
  .st-key-page_head h2 {font-size: 1.3rem; padding: 0}
  .st-key-login button [data-testid='stMarkdownContainer'] {width: 0; overflow: hidden}
  .st-key-presets {flex-wrap: nowrap !important; overflow-x: auto; scrollbar-width: none}
  .st-key-presets > * {flex: 0 0 auto !important}
  .st-key-presets button p {white-space: nowrap}
  :is(_PAIRS_, .st-key-folded_inputs) {gap: 0.5rem !important}
  :is(_PAIRS_) > *,
  .st-key-folded_inputs > :not(:has(details[open])) {flex: 1 0 calc(50% - 0.25rem) !important; width: calc(50% - 0.25rem) !important; min-width: 0 !important}
  :is(_PAIRS_) > * > * {width: 100% !important}
  .st-key-folded_inputs details:not([open]) summary p {white-space: nowrap; overflow: hidden; text-overflow: ellipsis}
  .st-key-folded_inputs summary :is(span, div) {min-width: 0}
  :is(_CARDS_) [data-testid='stMetric'] > div {padding: 0.6rem 0.7rem !important}
  :is(_CARDS_) [data-testid='stMetricValue'] {font-size: 1.35rem}
  [data-testid='stMarkdownContainer'] th {min-width: 4.5rem}
  [data-testid='stMarkdownContainer'] th:first-child {min-width: 6rem}
}
"""
_CARDS = ".st-key-headline, .st-key-serve_cards, .st-key-sweep_cards, .st-key-probe_cards, .st-key-probe_outcome"
_ASKED = ".st-key-diagnose_seen, .st-key-diagnose_memory, .st-key-diagnose_second, .st-key-probe_inputs"
_PAIRS = f".st-key-main_inputs, .st-key-serve_inputs, .st-key-load_inputs, {_ASKED}, {_CARDS}"
STYLE = f"<style>{_RULES.replace('_PAIRS_', _PAIRS).replace('_CARDS_', _CARDS)}</style>"


def answer_first() -> None:
    """In the first view of a session the script rests here: the browser draws the answer, then loads and runs the charts' library (5 MB of
    script), which keeps it busy for a second. Not where no browser looks."""
    s = st.session_state
    if not s.get("_seen"):
        s["_seen"] = True
        if st.context.headers.get("User-Agent"):
            time.sleep(FIRST_VIEW_S)
