"""The JSON API: the command line's answers over HTTP, bounded for a server that many people use.

`asked.py` reads a request and answers it (no HTTP), `description.py` is its OpenAPI description, made from the same tables, `routes.py` the
HTTP side: bounds on bytes, time and requests at once; `headers.py` what every answer of the server carries; `bucket.py` a rate per address.
Starlette is imported here alone.
"""
