"""English texts of the pages."""

TEXT: dict[str, str] = {}
