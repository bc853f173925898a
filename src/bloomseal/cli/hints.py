"""The library's hints speak Python; these speak the command line's language."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from ..core.errors import BloomsealError, Hint, MissingFileError

_KEYS: Final = "--policy FILE, --keyring PATH, --kms URI, --key-file NAME=PATH or --key-env NAME=VARIABLE"
_IN_OPTIONS: Final = {
    Hint.INT96_US: "--int96-unit us",
    Hint.INT96_NS: "--int96-unit ns",
    Hint.KEYS: _KEYS,
    Hint.KEYS_TO_WRITE: "--keyring PATH",
    Hint.KEYS_BY_NAME: "--keyring PATH or --kms URI",
    Hint.FOOTER_KEY: "--key-file footer=PATH, --key-env footer=VARIABLE, or id:KEY_ID=",
    Hint.COLUMN_KEY: "--key-file COLUMN=PATH, --key-env COLUMN=VARIABLE, or id:KEY_ID=",
    Hint.KMS_OF_FILE: "the KMS that the file was written with, by --kms",
    Hint.OPEN_KEYRING: "--passphrase-file PATH or BLOOMSEAL_KEYRING_PASSPHRASE",
    Hint.CREATE_KEYRING: "bloomseal keyring create --keyring PATH",
    Hint.KEY_EXISTS: "--exist-ok, keyring rotate, or another name",
    Hint.SEAL: "--allow-plaintext; or seal it first: bloomseal seal --policy FILE",
    Hint.PLAINTEXT: "--allow-plaintext, or no keys",
    Hint.CTR: "--allow-ctr",
    Hint.AAD_PREFIX: "--policy FILE, and --table-root FOLDER where its AAD prefix has {path}; or --aad-prefix TEXT",
    Hint.NO_AAD_PREFIX: "leave out --aad-prefix",
    Hint.TABLE_ROOT: "root in the policy, --table-root FOLDER, or the folder itself as PATH",
    Hint.TABLE: "--table NAME",
    Hint.VERIFIED_FOOTER: "the footer key, or --allow-unverified-footer",
    Hint.ATTACH: "bloomseal attach, and ask who wrote to the file",
    Hint.REBUILD_FILTERS: "--rebuild-filters, and ask who wrote the file",
    Hint.PROBE: "bloomseal probe asks its filters",
    Hint.SIZE_TO_HIDE: "--bloom-filter COLUMN:ndv=N,hide_size or COLUMN:num_bytes=N,hide_size",
    Hint.HIDDEN_SIZE: "a greater ndv= or num_bytes=, a higher fpp=, or smaller row groups (--row-group-size)",
    Hint.EXISTING: "--mode append or overwrite",
    Hint.OVERWRITE: "another --output, or --overwrite",
    Hint.ROW_GROUP_SIZE: "--row-group-size alone decides its rows",
    Hint.UNSEAL_PLACE: "--output FOLDER, or --in-place",
    Hint.OUTPUT: "--output FOLDER",
    Hint.FOLLOW_LINKS: "look at the link; the rotating commands follow it with --follow-links",
    Hint.NO_PARTITIONS: "see who made the folder; named itself, it gives no column",
    Hint.PARTITION_BY: "if it is in no file: --partition-by COLUMN, or partition_by in the policy",
    Hint.WITHOUT_COLUMN: "--columns without it",
    Hint.MANY_VALUES: "--where-in COLUMN=PATH takes many values",
    Hint.CONDITION: "bloomseal read --where",
    Hint.KEYS_TO_WRAP: "--keyring PATH or --kms URI; or rekey",
    Hint.ENCRYPTION: "--policy FILE and --table NAME",
    Hint.JOURNAL: "another place: --journal PATH",
    Hint.ACCESS_LOG: "another place for access_log in the policy",
    Hint.SIGNER: "--signer KEY, or BLOOMSEAL_SIGNER",
    Hint.OWN_WRITERS: "leave the KMS to the policy",
}


def hint_for(error: BloomsealError, arguments: Sequence[str] = ()) -> str | None:
    """The error's hint, in options where it names arguments of the Python API. A file that was named, and is not there,
    is answered with the one of the nearest name.

    Args:
        arguments: of the command line.
    """
    if error.hint is None and isinstance(error, MissingFileError):
        named = [one for one in arguments if error.file and os.path.abspath(one) == os.path.abspath(error.file)]  # noqa: PTH100
        return _near(named[0]) if named else None
    return _IN_OPTIONS[error.hint] if isinstance(error.hint, Hint) else error.hint


def _near(path: str) -> str | None:
    folder, name = os.path.split(path.rstrip("/"))
    try:
        there = os.listdir(folder or ".")  # noqa: PTH208
    except OSError:
        return f"{folder} is no folder; look for the first part of the path that is missing"
    near = get_close_matches(name, there, 1)
    return os.path.join(folder, near[0]) if near else None  # noqa: PTH118
