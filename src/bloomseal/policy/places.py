"""Places that a policy speaks of: what its file names by relative paths, and what lies in a table's root."""

from __future__ import annotations

import os
import re
from pathlib import Path
from string import Formatter
from typing import Final
from urllib.parse import unquote

from ..core.errors import PolicyError
from ..storage.places import resolve_path

_PATH: Final = "{path}"
_SHIPPED: Final = 'aad_prefix = "{table}/{path}/"'
_INJECTIVE: Final = re.compile(r"[^{}]*(\{table\}/)?[^{}]*\{path\}/")
_PLACEHOLDERS: Final = frozenset({"table", "file", "path"})


def keyring_beside(uri: str, folder: str) -> str:
    """The URI of a KMS, a relative keyring counted from the policy's folder.

    Raises:
        PolicyError: another one lies where relative ones were counted from before: in the working folder.
    """
    from ..keytools.kms.registry import absolute

    found, before = absolute(uri, folder), absolute(uri)
    if found != before and (old := Path(unquote(before.partition("://")[2]))).exists():
        new = Path(unquote(found.partition("://")[2]))
        if not new.exists() or not new.samefile(old):
            raise PolicyError(
                f"kms: a relative keyring counts from the policy's folder, and another lies in the working folder: {old}",
                hint=f'kms = "keyring://{new}", or that of the other one',
            )
    return found


def root_beside(root: str | None, folder: str) -> str | None:
    """A table's root, a relative path counted from the policy's folder. A URI of a store stays as it is."""
    if root is None or ("://" in root and not root.startswith("file:")):
        return root
    return os.path.normpath(os.path.join(folder, resolve_path(root).path))  # noqa: PTH118


def check_template(template: str, table: str) -> None:
    """Refuse an AAD prefix that is none, or that two files could share. Raises PolicyError."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        parts = [("", "", "", None)]
    for _, name, form, conversion in parts:
        # Only plain names: a format string could reach into objects.
        if name is not None and (name not in _PLACEHOLDERS or form or conversion):
            raise PolicyError(f"table {table}: aad_prefix takes {{table}}, {{path}} and {{file}} only")
    if not template:
        raise PolicyError(f"table {table}: an empty aad_prefix", hint="leave it out")
    if _PATH not in template:
        return
    # Two files must not share a prefix, whatever they are called: a slash, which no name holds, ends table and path.
    if not _INJECTIVE.fullmatch(template):
        raise PolicyError(f"table {table}: a slash follows {{table}}, and {_PATH}, which comes last", hint=_SHIPPED)
    if "/" in table:
        raise PolicyError(f"table {table}: a name with a slash does not go with {_PATH} in aad_prefix")
