"""The library's hints speak Python; these speak the command line's language."""

from __future__ import annotations

from typing import Final

from ..errors import BloomsealError

__all__ = ["hint_for"]

_KEYS: Final = "--keyring PATH, --kms URI, --key-file NAME=PATH or --key-env NAME=VARIABLE"
_IN_OPTIONS: Final = {
    'int96_unit="us"': "--int96-unit us",
    'int96_unit="ns"': "--int96-unit ns",
    "decryption=DecryptionSpec(keys=...)": _KEYS,
    "footer_key=": "--key-file footer=PATH, --key-env footer=VARIABLE, or id:KEY_ID=",
    "column_keys=": "--key-file COLUMN=PATH, --key-env COLUMN=VARIABLE, or id:KEY_ID=",
    "leave out decryption=": "--allow-plaintext, or no keys",
    "the footer key, or DecryptionSpec": "the footer key, or --allow-unverified-footer",
    "Policy.for_table(name, root=FOLDER)": "--table-root FOLDER, or the folder itself as PATH",
    "aad_prefix=None": "leave out --aad-prefix",
    "DecryptionSpec(aad_prefix=)": "--aad-prefix TEXT",
    'DecryptionSpec(allow_ctr=True), or algorithm = "AES_GCM_CTR_V1" in the policy': "--allow-ctr",
    "Keyring(path, passphrase=...)": "--passphrase-file PATH or BLOOMSEAL_KEYRING_PASSPHRASE",
    "bloomseal keyring create, or": "bloomseal keyring create --keyring PATH",
    "attach_filters": "bloomseal attach",
    "keys=bloomseal.Keyring": "--keyring PATH",
    "keys= a Keyring or KMS": "--keyring PATH or --kms URI",
    "if you trust it: KeyTools": "the KMS that the file was written with, by --kms",
    "ndv= or num_bytes= beside": "--bloom-filter COLUMN:ndv=N,hide_size or COLUMN:num_bytes=N,hide_size",
    "a greater ndv= or num_bytes=": "a greater ndv= or num_bytes=, a higher fpp=, or smaller row groups (--row-group-size)",
    "probe() asks": "bloomseal probe asks its filters",
    "exist_ok=True": "--exist-ok, keyring rotate, or another name",
    "row_group_size=": "--row-group-size of at least 1",
}


def hint_for(error: BloomsealError) -> str | None:
    """The error's hint, in options where it names arguments of the Python API."""
    if error.hint is not None:
        for start, hint in _IN_OPTIONS.items():
            if error.hint.startswith(start):
                return hint
    return error.hint
