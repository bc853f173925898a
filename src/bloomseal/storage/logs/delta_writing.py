"""What whoever commits files to a Delta table by itself must know: what the table asks of its writers, and how a commit
fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...core.errors import BloomsealError, UnsupportedError

_HARMLESS: Final = {"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Writer features that ask nothing of a file that is added; invariants are looked for in the schema."""
_LEGACY: Final = 2
"""The greatest writer version that knows no constraints but those in the schema."""


def refuse_more_than_files(table: Any, path: str) -> None:
    """Whoever adds a file by itself must do what the table asks of writers; of most of it we know nothing.

    Raises:
        UnsupportedError: the table asks for more than files.
    """
    protocol, settings = table.protocol(), table.metadata().configuration or {}
    features = set(protocol.writer_features or ())
    legacy = protocol.min_writer_version > _LEGACY and not features
    checks = [name for name in settings if name.startswith("delta.constraints.")]
    bound = [field.name for field in table.schema().fields if field.metadata]
    if legacy or features - _HARMLESS or checks or bound:
        what = sorted(features - _HARMLESS) or checks or bound or [f"writer version {protocol.min_writer_version}"]
        raise UnsupportedError(
            f"a Delta table that asks more of its writers than files ({what[0]})", file=path,
            hint="another table; or Delta's own writer, and seal it nowhere",
        )  # fmt: skip


def committed(commit: Callable[[], object], target: str) -> None:
    """Make the new version.

    Raises:
        BloomsealError: the log did not take it, whatever the library raises.
    """
    try:
        commit()
    except Exception as error:
        failed = type(error).__name__
    else:
        return
    raise BloomsealError(
        f"the table's log did not take the new files ({failed}), so no version names them", file=target,
        hint="somebody else may have changed the table; try again, and VACUUM removes what lies about",
    )  # fmt: skip


def load_deltalake() -> Any:
    """The library, with what it has for transactions."""
    import deltalake
    import deltalake.transaction

    return deltalake
