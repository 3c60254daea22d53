"""The probe: a real prefill and decode over a paged cache on this machine's own device, beside what the planner predicts.

Only the modules that compute import torch. This file, `client`, `result`, `pool`, `shapes`, `fit`, `compare` and `errors`
never do: the web process can use them freely.
"""
