"""KVLedger's planner: configs to caches to plans. Pure: standard library and numpy. Start reading at cache.py and capacity.py."""
