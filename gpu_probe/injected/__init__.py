"""transformers' own model code over our paged memory: `run.py` one probe of it, `runner.py` the model with its cache and attention exchanged."""
