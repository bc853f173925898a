"""The policy: which column gets which master key, filter and sensitivity, and what binds a file to its table.

Writer, reader, rotation and audit share it. `keys/policy.example.toml` shows every setting.
"""

from .file import Policy, PolicyChoice, table_policy
from .keys import KeyPolicy
from .table import SENSITIVE, ColumnPolicy, IndexPolicy, Sensitivity, TablePolicy

__all__ = [
    "SENSITIVE",
    "ColumnPolicy",
    "IndexPolicy",
    "KeyPolicy",
    "Policy",
    "PolicyChoice",
    "Sensitivity",
    "TablePolicy",
    "table_policy",
]
