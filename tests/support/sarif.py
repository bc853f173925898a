"""SARIF 2.1.0 by classes that others have made from its schema: no field unknown, none missing, each of its type."""

from __future__ import annotations

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass
from pysarif import SarifLog

__all__ = ["check_sarif"]


def _alias(name: str) -> str:
    return "$schema" if name == "schema" else to_camel(name)


@dataclass(config=ConfigDict(extra="forbid", alias_generator=_alias, strict=True))
class _Checked:
    log: SarifLog


_LOG = TypeAdapter(_Checked)


def check_sarif(text: str) -> None:
    """Raises AssertionError: it is no SARIF log."""
    problems = []
    try:
        _LOG.validate_json(f'{{"log": {text}}}')
    except ValidationError as error:
        # A property bag may hold anything (section 3.8); its class names only the tags.
        free = ("properties", "unexpected_keyword_argument")
        problems = [one for one in error.errors() if (one["loc"][-2], one["type"]) != free]
    assert not problems, problems
