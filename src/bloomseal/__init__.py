"""Encrypted Bloom filters for lakehouse files: write, attach, probe, read and verify.

Names are loaded when they are first used: importing this loads no numba, no PySpark, no cloud SDK, and contacts nobody.
"""

from typing import TYPE_CHECKING

from ._lazy import lazily
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from . import audit as audit
    from . import evidence as evidence
    from . import orc as orc
    from . import rotation as rotation
    from .core.decryption import DecryptionSpec
    from .core.errors import (
        BloomsealError,
        BloomsealWarning,
        FormatError,
        IntegrityError,
        KeyAccessError,
        MissingDependencyError,
        MissingFileError,
        PolicyError,
        UnsupportedError,
        UsageError,
    )
    from .core.sbbf import SplitBlockBloomFilter
    from .format.inspect import Inspection
    from .format.verify import VerifyReport
    from .keytools import ExplicitKeys, KeyRetriever, Keyring, KeyTools
    from .policy import Policy
    from .read.door import open_file
    from .read.file import SealedFile, Verdict
    from .rotation.rewrap import RewrapReport, rewrap
    from .sbbf import FilterSpec
    from .specs import EncryptionSpec
    from .table.dataset import DatasetReport, write_dataset
    from .table.open import open_table, read_table
    from .table.report import TableVerifyReport
    from .table.sealed import SealedTable
    from .table.verbs import attach_filters, inspect, probe, verify
    from .table.writing import SealedWriter, write_table
    from .write.attach import AttachReport
    from .write.convert import ConversionReport, rekey, seal_file, unseal_file

__all__ = [
    "AttachReport",
    "BloomsealError",
    "BloomsealWarning",
    "ConversionReport",
    "DatasetReport",
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
    "MissingFileError",
    "Policy",
    "PolicyError",
    "RewrapReport",
    "SealedFile",
    "SealedTable",
    "SealedWriter",
    "SplitBlockBloomFilter",
    "TableVerifyReport",
    "UnsupportedError",
    "UsageError",
    "Verdict",
    "VerifyReport",
    "attach_filters",
    "inspect",
    "open_file",
    "open_table",
    "probe",
    "read_table",
    "rekey",
    "rewrap",
    "seal_file",
    "unseal_file",
    "verify",
    "write_dataset",
    "write_table",
]

if not TYPE_CHECKING:  # a type checker knows the names above, and refuses others
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "AttachReport": "write.attach",
            "BloomsealError": "core.errors",
            "BloomsealWarning": "core.errors",
            "ConversionReport": "write.convert",
            "DatasetReport": "table.dataset",
            "DecryptionSpec": "core.decryption",
            "EncryptionSpec": "specs",
            "ExplicitKeys": "keytools",
            "FilterSpec": "sbbf",
            "FormatError": "core.errors",
            "Inspection": "format.inspect",
            "IntegrityError": "core.errors",
            "KeyAccessError": "core.errors",
            "KeyRetriever": "keytools",
            "KeyTools": "keytools",
            "Keyring": "keytools",
            "MissingDependencyError": "core.errors",
            "MissingFileError": "core.errors",
            "Policy": "policy",
            "PolicyError": "core.errors",
            "RewrapReport": "rotation.rewrap",
            "SealedFile": "read.file",
            "SealedTable": "table.sealed",
            "SealedWriter": "table.writing",
            "SplitBlockBloomFilter": "core.sbbf",
            "TableVerifyReport": "table.report",
            "UnsupportedError": "core.errors",
            "UsageError": "core.errors",
            "Verdict": "read.file",
            "VerifyReport": "format.verify",
            "attach_filters": "table.verbs",
            "audit": "",
            "duckdb": "",
            "evidence": "",
            "inspect": "table.verbs",
            "open_file": "read.door",
            "orc": "",
            "polars": "",
            "open_table": "table.open",
            "probe": "table.verbs",
            "read_table": "table.open",
            "rekey": "write.convert",
            "rewrap": "rotation.rewrap",
            "rotation": "",
            "seal_file": "write.convert",
            "spark": "",
            "unseal_file": "write.convert",
            "verify": "table.verbs",
            "write_dataset": "table.dataset",
            "write_table": "table.writing",
        },
    )
