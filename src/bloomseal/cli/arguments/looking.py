"""How an audit looks at files: the policy that they are held against, and how deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...core.errors import UsageError
from ...policy import Policy
from ..state import PATH
from .keys import KeyOptions
from .options import option, options

__all__ = ["LookOptions", "look_options"]

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class LookOptions:
    """The options of `look_options`, as given."""

    policy: str | None = option("--policy", type=PATH, metavar="FILE", help="Policy file to hold the files against.")
    table: str | None = option("--table", metavar="NAME", help="The policy's table, where paths don't tell it.")
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


look_options = options(LookOptions, "look")
"""Give a command ``look``, a `LookOptions`."""
