"""How an audit looks at files: the policy that they are held against, and how deep; and ``--may-destroy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from ...core.errors import UsageError
from ...policy import Policy
from ..command import PATH, CommandState
from ..render import facts, listed, print_json, printable, progress
from .keys import KeyOptions
from .options import option, policy_option

if TYPE_CHECKING:
    from ...audit.destruction.answer import Destruction

_EXIT_CODES: Final = {"yes": 0, "no": 1, "unknown": 3}


@dataclass(frozen=True)
class HeldAgainst:
    """The policy that files are held against."""

    SECTION: ClassVar = "Policy and depth"
    policy: str | None = policy_option("Policy file to hold the files against")
    table: str | None = option("--table", metavar="NAME", help="The policy's table, where paths don't tell it.")


@dataclass(frozen=True)
class LookOptions(HeldAgainst):
    """What files are held against, and how deep they are looked at."""

    aad_prefix: str | None = option(
        "--aad-prefix", metavar="TEXT", help="AAD prefix of files that don't store theirs, without a policy."
    )
    deep: bool = option(
        "--deep",
        is_flag=True,
        help="Read whole files: open every module as verify does; repeated nonces, filters in clear or wrong, copied columns.",
    )
    without_keys: bool = option(
        "--without-keys", is_flag=True, help="Look at what everybody sees, whatever KMS the policy names."
    )

    def arguments(self, keys: KeyOptions, needs_keys: str | None = None) -> dict[str, Any]:
        """The keys and the policy, by their names in the library.

        Args:
            needs_keys: an option that was given and that asks a KMS.

        Raises:
            UsageError: keys are named, or needed, and not wanted.
        """
        if self.without_keys and (keys.said() is not None or needs_keys):
            raise UsageError(f"--without-keys goes neither with keys nor with {needs_keys or 'what needs them'}")
        return {
            "keys": None if self.without_keys else keys.reading(policy=self.policy is not None),
            "policy": None if self.policy is None else Policy.load(self.policy),
            "table": self.table,
            "aad_prefix": self.aad_prefix,
            "with_keys": not self.without_keys,
        }


@dataclass(frozen=True)
class DestructionOptions:
    """Whether a master key may be destroyed.

    Attributes:
        may_destroy: ``KEY:VERSION``; None where it is not what is asked.
        also: copies to be looked at too.
        after: seconds that writers may use a key that they hold.
    """

    SECTION: ClassVar = "Destruction of keys"
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
        return _EXIT_CODES[found.answer]


def _tell(found: Destruction) -> None:
    key, version = found.question.master_key, found.question.version
    which = "in all its versions" if version == "*" else f"version {version}"
    click.echo(printable(f"{found.answer}: {key} {which}"))
    for answer, said in (("no", "needed by"), ("unknown", "in doubt")):
        listed(f"{said}:", (str(reason) for reason in found.reasons if reason.answer == answer))
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
    listed("not looked at:", found.not_looked_at)
