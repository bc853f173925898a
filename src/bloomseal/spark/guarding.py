"""Where Spark's own writer must not leave plaintext, and what it must not remove too early: both are for the JVM to
keep (`java/Guard.java`, `java/LateDeletes.java`), whose settings are made here.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from ..core.columns import in_tables
from ..core.encryption import Algorithm
from ..core.errors import PolicyError, UsageError
from ..policy import Policy, TablePolicy
from .given import ACCESS, CRYPTO_FACTORY
from .jar import BATCH_COMMITS, KMS_CLIENT, STREAM_COMMITS
from .listing import qualified, split_uri
from .settings import options
from .versions import file_sink_keeps_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Places = Iterable[str | os.PathLike[str]]

_BATCH: Final = "spark.sql.sources.commitProtocolClass"
_STREAM: Final = "spark.sql.streaming.commitProtocolClass"
COMMITS: Final = {_BATCH: BATCH_COMMITS, _STREAM: STREAM_COMMITS}
_SPARKS: Final = {
    _BATCH: "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
    _STREAM: "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol",
}

TIMESTAMPS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Nothing prunes by INT96."""
LEFT_OUT: Final = {
    "spark.sql.files.ignoreCorruptFiles": "Spark would leave out sealed files that don't open; they are refused",
    "spark.sql.files.ignoreMissingFiles": "rows of files that somebody removes during a query are left out silently",
}
"""Settings by which a read of Spark's own has fewer rows, and no error."""


def placed(
    spark: SparkSession, policy: Policy | None, tables: Mapping[str, str | os.PathLike[str]]
) -> tuple[Policy | None, dict[str, str]]:
    """The policy with its tables in their folders, and the URIs of all folders that are known.

    Raises:
        UsageError: folders, and no policy; or something else than a dict.
        PolicyError: it has no such table.
    """
    if not isinstance(tables, Mapping):
        what = f"tables= takes a dict of the policy's tables and their folders, not {type(tables).__name__}"
        raise UsageError(what, hint='tables={"people": "/lake/people"}')
    if policy is None:
        if tables:
            raise UsageError("tables= names folders of a policy's tables, and there is no policy", hint="policy=")
        return None, {}
    uris = {name: qualified(spark, folder) for name, folder in tables.items()}
    known = {name: policy.for_table(name).at(split_uri(uri)[1]) for name, uri in uris.items()}
    policy = Policy({**policy.tables, **known}, policy.origin)
    roots = {name: one.root for name, one in policy.tables.items() if one.root is not None}
    return policy, {**{name: qualified(spark, root) for name, root in roots.items()}, **uris}


def table_place(table: TablePolicy, folder: str | None, *, pinned: bool = False) -> dict[str, Any]:
    """What the bridge is told of a table: how its files' AAD prefixes are made, and its master keys.

    Args:
        folder: the table's, as a URI; None where it is not known.
        pinned: for a read that holds each column to the master keys that the policy names.
    """
    prefix = None
    if table.aad_prefix is not None:
        prefix = [
            {"text": text + (table.name if field == "table" else ""), "field": "" if field == "table" else field or ""}
            for text, field, _, _ in Formatter().parse(table.aad_prefix)
        ]
    return {
        "name": table.name,
        "root": folder,
        "prefix": prefix,
        "store": table.store_aad_prefix,
        "keys": sorted(table.master_keys),
        "options": {} if folder is None or pinned else options(table),
        "footer": not table.plaintext_footer,
        "complete": table.complete or table.uniform,
        "columns": {in_tables(name): column.key for name, column in table.columns.items()},
        # Where all columns are sealed; others are kept out of the names of folders by their keys.
        "folders": sorted(table.partition_by) if table.complete or table.uniform else None,
        "pins": _pins(table) if pinned else None,
        "signers": table.signers or None,
    }


def _pins(table: TablePolicy) -> dict[str, Any]:
    footer = sorted({table.footer_key, *table.previous_footer_keys})
    sealed = {name: table.columns[name] for name in table.encrypted_columns}
    columns = {
        in_tables(name): sorted({one.key, *one.previous_keys}) if one.key else footer for name, one in sealed.items()
    }
    ctr = table.allow_ctr or table.algorithm is Algorithm.AES_GCM_CTR_V1
    return {"footer": footer, "columns": columns, "ctr": ctr}


def folder_uri(table: TablePolicy, target: str) -> str:
    """The URI of the table's folder, of which `target` is the folder that is written to.

    Raises:
        PolicyError: that lies elsewhere.
    """
    if table.root is None:
        return target
    inside = posixpath.relpath(split_uri(target)[1], table.root)
    if inside.startswith(".."):
        hint = f"a folder in {table.root}, or table= another table of the policy"
        raise PolicyError(f"the folder is not in that of table {table.name}", file=target, hint=hint)
    return target if inside == "." else target.rstrip("/").removesuffix(f"/{inside}")


def guard_of(
    policy: Policy | None, folders: Mapping[str, str], everywhere: bool, sealed: Iterable[str], plain: Iterable[str]
) -> dict[str, Any]:
    """What the bridge is told of places.

    Args:
        folders: table → its folder, as a URI.
        everywhere, sealed, plain: where sealed files are wanted, and where plaintext is allowed all the same; URIs.

    Raises:
        PolicyError: a table has signers, and no folder is known for it.
    """
    tables = {} if policy is None else policy.tables
    for name, table in tables.items():
        if table.signers and name not in folders:
            raise PolicyError(
                f"the files of table {name} are signed for their places, and its folder is not known",
                hint=f'tables={{"{name}": folder}}; root in the policy',
            )
    return {
        "everywhere": everywhere,
        "sealed": sorted({*sealed, *folders.values()}),
        "plain": sorted(set(plain)),
        "streams": file_sink_keeps_options(),
        "tables": [table_place(one, folders.get(name)) for name, one in sorted(tables.items())],
    }


def commit_protocols(spark: SparkSession) -> dict[str, str]:
    """Ours in the place of Spark's own. One that the application has chosen stays: object stores have their own."""
    chosen = {name: str(spark.conf.get(name, _SPARKS[name])) for name in COMMITS}
    return {name: ours for name, ours in COMMITS.items() if chosen[name] in (_SPARKS[name], ours)}


def settings_file(given: Mapping[str, Any]) -> tuple[str, bytes, str]:
    """The file that tells the bridge what an application was given: name, content, and the digest that names it."""
    text = json.dumps(given, sort_keys=True).encode()
    digest = hashlib.sha256(text).hexdigest()
    return f"bloomseal-{digest}.json", text, digest


def parquet_settings(digest: str, lifetime: int) -> dict[str, str]:
    """What parquet-java is told, by a session or when its application starts.

    Args:
        digest: of the bridge's settings, after which their file is called.
        lifetime: seconds that keys are kept.
    """
    return {
        "parquet.crypto.factory.class": CRYPTO_FACTORY,
        "parquet.encryption.kms.client.class": KMS_CLIENT,
        # parquet-java shares KMS clients and keys between all sessions of a JVM that show the same access token. No
        # secret: a name for these settings, so that a session with others gets clients and keys of its own.
        ACCESS: f"bloomseal:{digest}",
        "parquet.encryption.cache.lifetime.seconds": str(lifetime),
    }


def deletes_late(spark: SparkSession) -> bool:
    """Whether an overwrite of this session keeps the old files until the new ones are there."""
    return str(spark.conf.get(_BATCH, "")) == BATCH_COMMITS
