"""Encrypted Bloom filters for lakehouse files: write, attach, probe, read and verify.

Importing this loads no numba, no PySpark, no cloud SDK, and contacts nobody.
"""

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
from .parquet.reader import SealedFile, Verdict, open_file, probe, read_table, verify
from .parquet.specs import DecryptionSpec, EncryptionSpec
from .parquet.writer import SealedWriter, write_table
from .sbbf import FilterSpec, SplitBlockBloomFilter

__version__ = "0.1.0"

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
    "PolicyError",
    "SealedFile",
    "SealedWriter",
    "SplitBlockBloomFilter",
    "UnsupportedError",
    "UsageError",
    "Verdict",
    "attach_filters",
    "inspect",
    "open_file",
    "probe",
    "read_table",
    "rekey",
    "seal_file",
    "unseal_file",
    "verify",
    "write_table",
]
