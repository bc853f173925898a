"""What a caller hands to the bridge and the data source, checked before use: policies, KMS addresses, options."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from ..core.errors import UsageError
from ..core.text import articled
from ..keytools.keyring.passphrase import PASSPHRASE_FILE_VARIABLE
from ..keytools.kms.registry import check_uri
from ..policy import Policy, TablePolicy

MERGE_SCHEMA: Final = "spark.sql.parquet.mergeSchema"
PARTITION_INFERENCE: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
PARTITION_OVERWRITE: Final = "spark.sql.sources.partitionOverwriteMode"

CRYPTO_FACTORY: Final = "bloomseal.spark.TableCrypto"
ACCESS: Final = "parquet.encryption.key.access.token"
_SECRET: Final = re.compile(
    r"(?i)secret|passw|passphrase|token|credential|(private|access|session)[._-]?key|(?:^|[._-])pin$|key[._-]?list|explicit"
)
_RIGHT_WAY: Final = (
    "options and Spark configuration show in the UI, plans and event logs: put the secret into each machine's environment "
    "or into a file that is mounted there; see docs/spark.md"
)


def refuse_secrets(settings: Mapping[str, str]) -> None:
    """Refuse settings that would publish a secret.

    Raises:
        UsageError: a name that looks like one. The value is not told.
    """
    for name, value in settings.items():
        ours = (name.endswith(ACCESS) and value.startswith("bloomseal:")) or name.endswith(PASSPHRASE_FILE_VARIABLE)
        if _SECRET.search(name) and value and not ours:
            raise UsageError(f"the option {name} looks like a secret", hint=_RIGHT_WAY)


def kms_uri(table: TablePolicy) -> str:
    """Where executors find the policy's KMS, and its recipients.

    Raises:
        UsageError: it is an object, which can't reach them.
    """
    if isinstance(table.kms, str) or (table.kms is None and table.recipients):
        return kms_of(Policy({table.name: table}))
    raise UsageError("the policy's KMS is an object, which can't reach the executors", hint="name it by its URI")


def kms_of(policy: Policy | None, kms: str | None = None) -> str:
    """The one KMS of a policy's tables, or `kms` in its place; and the recipients of their master keys.

    Raises:
        UsageError: none, or several, or an object.
    """
    tables = () if policy is None else policy.tables.values()
    named = {table.kms for table in tables if isinstance(table.kms, str)} if kms is None else {kms}
    lines = {name: lines for table in tables for name, lines in table.recipients.items()}
    if lines and len(named) < 2:
        return _with_recipients(lines, named.pop() if named else None)
    if kms is not None:
        return kms
    if len(named) != 1:
        raise UsageError("no KMS is named", hint='kms="keyring:///path/keys.json"; docs/kms.md has all')
    return str(named.pop())


def _with_recipients(lines: Mapping[str, Iterable[str]], kms: str | None) -> str:
    from ..keytools.recipients_kms import RecipientsKms

    return RecipientsKms(lines, None if kms is None else absolute_kms(kms)).uri


def absolute_kms(kms: str) -> str:
    """The URI, a relative keyring resolved here: executors run in folders of their own."""
    if not isinstance(kms, str):
        raise UsageError(f"{articled(type(kms).__name__)} can't reach the executors", hint="name the KMS by its URI")
    check_uri(kms)
    parts = urlsplit(kms)
    if parts.scheme == "keyring" and not parts.netloc and (path := unquote(parts.path)).strip("/"):
        return "keyring://" + quote(str(Path(os.path.expanduser(path)).absolute()))  # noqa: PTH111
    return kms
