"""What a run measures beside its answers: bytes beside their prediction, the host's ceilings and overheads, times and shares, capacity."""
