"""``--may-destroy`` and what belongs to it: the question, and the answer on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ...core.errors import UsageError
from ..render import facts, print_json, printable, progress
from ..state import PATH, CommandState
from .options import option, options

if TYPE_CHECKING:
    from ...audit.destruction.answer import Destruction

__all__ = ["EXIT_CODES", "DestructionOptions", "destruction_options"]

Function = TypeVar("Function", bound=Callable[..., Any])
EXIT_CODES: Final = {"yes": 0, "no": 1, "unknown": 3}
_SHOWN: Final = 20


@dataclass(frozen=True)
class DestructionOptions:
    """The options of `destruction_options`, as given.

    Attributes:
        may_destroy: ``KEY:VERSION``; None where it is not what is asked.
        also: copies to be looked at too.
        after: seconds that writers may use a key that they hold.
    """

    may_destroy: str | None = option(
        "--may-destroy",
        metavar="KEY:VERSION",
        help="Answer only whether this master key version (KEY:*: any version) is still needed, by any retained table "
        "version too: yes, no or unknown.",
    )
    also: tuple[str, ...] = option(
        "--also",
        type=PATH,
        multiple=True,
        metavar="PATH",
        help="For --may-destroy: a copy elsewhere to look at too, such as a backup or a clone. Repeatable.",
    )
    after: float | None = option(
        "--after",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="For --may-destroy: how long writers go on using a key that they hold, counted from the key's rotation "
        "(default: 600, the lifetime of key tools' caches). 0: no writer runs.",
    )

    def __post_init__(self) -> None:
        if self.may_destroy is None and (self.also or self.after is not None):
            raise UsageError("--also and --after belong to --may-destroy")

    def answer(self, paths: Sequence[str], common: dict[str, Any]) -> int:
        """Ask, tell, and give the exit code."""
        from ...audit import may_destroy
        from ...audit.destruction.question import named_version

        key, version = named_version(self.may_destroy or "")
        with progress("Looking") as tell:
            found = may_destroy(
                key, version, list(paths), also=list(self.also), after=self.after, progress=tell, **common
            )
        if CommandState.current().json:
            print_json(found.to_dict())
        else:
            _tell(found)
        return EXIT_CODES[found.answer]


destruction_options = options(DestructionOptions, "destruction")
"""Give a command ``destruction``, a `DestructionOptions`."""


def _tell(found: Destruction) -> None:
    key, version = found.question.master_key, found.question.version
    which = "in all its versions" if version == "*" else f"version {version}"
    click.echo(printable(f"{found.answer}: {key} {which}"))
    for answer, said in (("no", "needed by"), ("unknown", "in doubt")):
        reasons = [reason for reason in found.reasons if reason.answer == answer]
        for reason in reasons[:_SHOWN]:
            click.echo(printable(f"  {said}: {reason}"))
        if len(reasons) > _SHOWN:
            click.echo(f"  and {len(reasons) - _SHOWN} more: --format json has all")
    facts(
        [
            ("looked at", ", ".join(found.looked_at)),
            ("files", found.files),
            ("versions of tables", found.snapshots),
            ("files of key material", found.sidecars),
            ("keys tied to a version by the KMS", found.keys),
            ("which are under", ", ".join(found.under) or "none"),
            ("gone from older versions", len(found.missing)),
        ]
    )
    for text in found.not_looked_at:
        click.echo(f"  not looked at: {text}")
