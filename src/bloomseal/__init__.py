"""Encrypted Bloom filters for lakehouse files: write, attach, probe, read and verify.

Names are loaded when they are first used: importing this loads no numba, no PySpark, no cloud SDK, and contacts nobody.
"""

from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .errors import (
        BloomsealError,
        BloomsealWarning,
        FormatError,
        IntegrityError,
        KeyAccessError,
        MissingDependencyError,
        PolicyError,
        UnsupportedError,
        UsageError,
    )
    from .keytools import ExplicitKeys, KeyRetriever, Keyring, KeyTools
    from .parquet.attach import AttachReport, attach_filters
    from .parquet.convert import ConversionReport, rekey, seal_file, unseal_file
    from .parquet.inspect import Inspection, inspect
    from .parquet.reader import SealedFile, Verdict, open_file, probe, verify
    from .parquet.specs import DecryptionSpec, EncryptionSpec
    from .parquet.table import read_table
    from .parquet.verify import VerifyReport
    from .parquet.writer import SealedWriter, write_table
    from .policy import Policy
    from .rotation.rewrap import RewrapReport, rewrap
    from .sbbf import FilterSpec, SplitBlockBloomFilter


_HOMES = {
    ".errors": (
        "BloomsealError",
        "BloomsealWarning",
        "FormatError",
        "IntegrityError",
        "KeyAccessError",
        "MissingDependencyError",
        "PolicyError",
        "UnsupportedError",
        "UsageError",
    ),
    ".keytools": ("ExplicitKeys", "KeyRetriever", "KeyTools", "Keyring"),
    ".parquet.attach": ("AttachReport", "attach_filters"),
    ".parquet.convert": ("ConversionReport", "rekey", "seal_file", "unseal_file"),
    ".parquet.inspect": ("Inspection", "inspect"),
    ".parquet.reader": ("SealedFile", "Verdict", "open_file", "probe", "verify"),
    ".parquet.specs": ("DecryptionSpec", "EncryptionSpec"),
    ".parquet.table": ("read_table",),
    ".parquet.verify": ("VerifyReport",),
    ".parquet.writer": ("SealedWriter", "write_table"),
    ".rotation.rewrap": ("RewrapReport", "rewrap"),
    ".policy": ("Policy",),
    ".sbbf": ("FilterSpec", "SplitBlockBloomFilter"),
}
_PARTS = ("audit", "rotation", "spark")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AttachReport",
    "BloomsealError",
    "BloomsealWarning",
    "ConversionReport",
    "DecryptionSpec",
    "EncryptionSpec",
    "ExplicitKeys",
    "FilterSpec",
    "FormatError",
    "Inspection",
    "IntegrityError",
    "KeyAccessError",
    "KeyRetriever",
    "KeyTools",
    "Keyring",
    "MissingDependencyError",
    "Policy",
    "PolicyError",
    "RewrapReport",
    "SealedFile",
    "SealedWriter",
    "SplitBlockBloomFilter",
    "UnsupportedError",
    "UsageError",
    "Verdict",
    "VerifyReport",
    "attach_filters",
    "inspect",
    "open_file",
    "probe",
    "read_table",
    "rekey",
    "rewrap",
    "seal_file",
    "unseal_file",
    "verify",
    "write_table",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if name in _PARTS:
        from importlib import import_module

        return import_module(f".{name}", __name__)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
