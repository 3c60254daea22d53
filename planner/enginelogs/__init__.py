"""Start-up logs of inference engines: read line by line, held against their own figures and against a plan.

text.py bytes -> lines; table.py the patterns (planner/data/enginelogs.toml); reader.py the log's figures, flags, refusals; masks.py what is
never shown; checks.py figures that must agree with each other; compare.py and causes.py against a plan; measured.py back into the plan.
A log is hostile input: bounded, never run, and only its figures are kept.
"""

from __future__ import annotations

from planner.enginelogs.masks import masked
from planner.enginelogs.reader import LogReading, read_log
from planner.enginelogs.reconcile import Reconciliation, reconcile

__all__ = ["LogReading", "Reconciliation", "masked", "read_log", "reconcile"]
