"""Why a master key can't be used: six answers that a person acts on in six different ways, and a seventh for
nonsense.
"""

from __future__ import annotations

import traceback
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from ..errors import KeyAccessError
from ..text import safe_text

_HERE: Final = Path(__file__).parents[2]


class Problem(StrEnum):
    """What stands between the caller and a master key. Only UNREACHABLE and THROTTLED may pass by themselves."""

    DENIED = "denied"
    DISABLED = "disabled"
    DESTROYED = "destroyed"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"
    THROTTLED = "throttled"
    INVALID = "invalid"


_WHAT = {
    Problem.DENIED: "{kms} denies the use of master key {key}",
    Problem.DISABLED: "master key {key} is disabled in {kms}",
    Problem.DESTROYED: "master key {key} was destroyed in {kms}; nothing that it wrapped can be opened again",
    Problem.UNKNOWN: "{kms} knows no master key {key}",
    Problem.UNREACHABLE: "{kms} could not be reached for master key {key}",
    Problem.THROTTLED: "{kms} refuses master key {key} for now: too many requests",
    Problem.INVALID: "{kms} gave no usable answer for master key {key}",
}
_HINT = {
    Problem.DENIED: "ask the key's owner for the right to use it; docs/kms.md lists the permissions",
    Problem.DISABLED: "enable the key again, or read what other keys cover",
    Problem.DESTROYED: "restore the data from a copy under another key",
    Problem.UNKNOWN: "check the name, the region or project, and which KMS the file was written with",
    Problem.UNREACHABLE: "try again; check network and address",
    Problem.THROTTLED: "try again later, with fewer at a time, or raise the quota",
    Problem.INVALID: "the wrapped key may be altered, truncated, or another master key's",
}


def shown(name: str) -> str:
    """A master key's name or an address, as messages show it: quoted, safe to show, of bounded length."""
    return f"'{safe_text(name if len(name) <= 200 else name[:197] + '...')}'"


def raised_by(failure: BaseException) -> str:
    """Type and place of what foreign code raised, such as ``ValueError at my_kms.py:12``; never its message, which may
    hold a secret. The place is the innermost line outside Bloomseal, of installed libraries only where nothing else was
    on the way.
    """
    import sysconfig  # takes as long to load as a page takes to read, and few failures come by

    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    lines = [(Path(frame.f_code.co_filename), number) for frame, number in traceback.walk_tb(failure.__traceback__)]
    foreign = [(path, number) for path, number in lines if not path.is_relative_to(_HERE)]
    own = [(path, number) for path, number in foreign if not any(map(path.is_relative_to, libraries))]
    place = (own or foreign)[-1:]
    return type(failure).__name__ + "".join(f" at {path.name}:{number}" for path, number in place)


class KmsAccessError(KeyAccessError):
    """A master key could not be used.

    Attributes:
        problem: one of `Problem`.
        retryable: True for UNREACHABLE and THROTTLED only.
        unauthentic: True for INVALID: no KMS tells an altered wrapped key from another nonsense.
    """

    problem: Problem = Problem.INVALID

    @classmethod
    def because(
        cls, problem: Problem, master_key: str, kms: str = "the KMS", *, detail: str | None = None, **rest: Any
    ) -> KmsAccessError:
        """The error for `problem`; `detail` (never secret, never a vendor's free text) is appended to the sentence."""
        what = _WHAT[problem].format(key=shown(master_key), kms=kms)
        error = cls(
            f"{what}: {detail}" if detail else what,
            retryable=problem in (Problem.UNREACHABLE, Problem.THROTTLED),
            unauthentic=rest.pop("unauthentic", problem is Problem.INVALID),
            lacking=problem in (Problem.DENIED, Problem.DISABLED, Problem.DESTROYED, Problem.UNKNOWN),
            hint=rest.pop("hint", _HINT[problem]),
            **rest,
        )
        error.problem = problem
        return error
