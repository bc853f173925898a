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
    from .core.decryption import DecryptionSpec as DecryptionSpec
    from .core.decryption import IcebergSpec as IcebergSpec
    from .core.errors import BloomsealError as BloomsealError
    from .core.errors import BloomsealWarning as BloomsealWarning
    from .core.errors import FormatError as FormatError
    from .core.errors import IntegrityError as IntegrityError
    from .core.errors import KeyAccessError as KeyAccessError
    from .core.errors import MissingDependencyError as MissingDependencyError
    from .core.errors import MissingFileError as MissingFileError
    from .core.errors import PolicyError as PolicyError
    from .core.errors import UnsupportedError as UnsupportedError
    from .core.errors import UsageError as UsageError
    from .core.keys.explicit import ExplicitKeys as ExplicitKeys
    from .core.keys.protocols import KeyRetriever as KeyRetriever
    from .core.sbbf import SplitBlockBloomFilter as SplitBlockBloomFilter
    from .core.verdict import Verdict as Verdict
    from .format.inspect import Inspection as Inspection
    from .format.verify import VerifyReport as VerifyReport
    from .keytools.keyring.keyring import Keyring as Keyring
    from .keytools.signatures.signers import Signers as Signers
    from .keytools.tools import KeyTools as KeyTools
    from .policy import Policy as Policy
    from .read.file import SealedFile as SealedFile
    from .read.open import open_file as open_file
    from .rotation.rewrap import RewrapReport as RewrapReport
    from .rotation.rewrap import rewrap as rewrap
    from .sbbf import FilterSpec as FilterSpec
    from .specs import EncryptionSpec as EncryptionSpec
    from .table.dataset import DatasetReport as DatasetReport
    from .table.dataset import write_dataset as write_dataset
    from .table.open import open_table as open_table
    from .table.open import read_table as read_table
    from .table.report import TableVerifyReport as TableVerifyReport
    from .table.sealed import SealedTable as SealedTable
    from .table.verbs import attach_filters as attach_filters
    from .table.verbs import inspect as inspect
    from .table.verbs import probe as probe
    from .table.verbs import verify as verify
    from .table.writing import SealedWriter as SealedWriter
    from .table.writing import write_table as write_table
    from .write.attach import AttachReport as AttachReport
    from .write.convert import ConversionReport as ConversionReport
    from .write.convert import rekey as rekey
    from .write.convert import seal_file as seal_file
    from .write.convert import unseal_file as unseal_file
else:
    __all__, __getattr__, __dir__ = lazily(__name__, "duckdb", "polars", "spark")
