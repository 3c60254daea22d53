"""How a run can end early, beyond the planner's own errors. Exit codes of the command line: 2 refused, 3 memory, 4 time."""

from __future__ import annotations

from importlib.util import find_spec

from planner.errors import PlannerError, UnsupportedValue

EXIT_REFUSED, EXIT_MEMORY, EXIT_TIME, EXIT_FAULT = 2, 3, 4, 1


class ProbeOutOfMemory(PlannerError):
    """The set-up does not fit into the memory that the run may use, or an allocation was refused."""


class ProbeTimeLimit(PlannerError):
    """The run took longer than it was allowed to."""


class ProbeFault(PlannerError):
    """The child died, or raised what nobody expected: our fault or the machine's."""


def installed(package: str) -> bool:
    """Whether an optional package can be imported, without importing it."""
    return find_spec(package) is not None


def require(package: str) -> None:
    """Raises UnsupportedValue where an optional package is missing."""
    if not installed(package):
        raise UnsupportedValue("probe_transformers", field="runner", package=package)


def exit_code(error: PlannerError) -> int:
    for kind, code in ((ProbeOutOfMemory, EXIT_MEMORY), (ProbeTimeLimit, EXIT_TIME), (ProbeFault, EXIT_FAULT)):
        if isinstance(error, kind):
            return code
    return EXIT_REFUSED
