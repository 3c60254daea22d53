"""The errors that a user can act on. Each carries a message code, its arguments, the field, and (through the code) a way out.

PlannerError
|- InvalidInput        a number or a combination that the user gave is out of range or inconsistent
|- ConfigError
|  |- NotAConfig       the bytes are not a JSON object that could be a config
|  |- MissingField     a key that the planner needs is absent; names every alias tried
|  |- UnsupportedModel the shape of this model is not known; names the key that stopped us
|  `- UnsupportedValue a key has a value that the planner does not know
|- SourceError         the config could not be fetched: hub, network, folder
|- StoreError          the database of kept plans: absent, unwritable, damaged, full, or without such a row
|- UnknownName         a GPU, engine or catalog name that is not in the table; offers near ones
`- DataError           a shipped table is malformed: our fault, found by the tests

"Does not fit" is not here: it is a result (`CapacityPlan.fits`).
"""

from __future__ import annotations

from typing import Any


class PlannerError(Exception):
    """Anything that is shown to the user as it stands. `field` is the config's key or the option's name."""

    def __init__(self, code: str, *, field: str = "", **args: Any) -> None:
        super().__init__(code)
        self.code = code
        self.field = field
        self.args_by_name = {"field": field, **args}

    @property
    def message(self) -> str:
        from planner.messages import render

        return render(f"error.{self.code}", self.args_by_name)

    @property
    def hint(self) -> str:
        from planner.messages import render

        return render(f"error.{self.code}.hint", self.args_by_name)

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, str]:
        return {"type": type(self).__name__, "code": self.code, "message": self.message, "field": self.field, "hint": self.hint}


class InvalidInput(PlannerError): ...


class ConfigError(PlannerError): ...


class NotAConfig(ConfigError): ...


class MissingField(ConfigError): ...


class UnsupportedModel(ConfigError): ...


class UnsupportedValue(ConfigError): ...


class SourceError(PlannerError): ...


class StoreError(PlannerError): ...


class UnknownName(PlannerError): ...


class DataError(PlannerError): ...
