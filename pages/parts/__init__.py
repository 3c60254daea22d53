"""What the pages share: inputs, state, charts, tables, errors, jobs."""
