"""What a reader without any key sees of an ORC file, see `bloomseal.format.inspect`."""

from __future__ import annotations

from ...core.storage.source import Source
from ...format.inspect import ColumnFacts, Inspection
from ...orc.layout import OrcLayout
from ...orc.protobuf import Message
from ...orc.schema import OrcColumn


def inspect_orc(source: Source) -> Inspection:
    """Look at an open file.

    Raises:
        FormatError: the footer, or that of a stripe, is broken.
    """
    file = OrcLayout(source)
    seen = Inspection(source.name, source.size, "plaintext", file_format="ORC")
    seen.created_by = writer_of(file)
    seen.num_rows = file.num_rows
    seen.num_row_groups = sum(stripe.num_row_groups for stripe in file.stripes)
    seen.key_value_keys = [Message(one).text(1) for one in Message(file.tail.raw_footer).every(5)]
    if file.encryption is not None and file.tail.sealed:
        names = dict.fromkeys(key.algorithm.name if key.algorithm else "unknown" for key in file.encryption.keys)
        seen.algorithm = ", ".join(names)
        seen.hidden.append(
            "values, statistics and filters of encrypted columns, as far as they are not named as exposed"
        )
    filters: dict[str, set[str]] = {}
    for info in file.filters:
        filters.setdefault(info.column, set()).add("sealed" if info.encrypted else "in clear")
    seen.columns = [_column(file, leaf, filters.get(leaf.name, set())) for leaf in file.schema.leaves]
    return seen


def writer_of(file: OrcLayout) -> str:
    """The writer, by the footer's own account."""
    known = file.tail.writer
    return f"ORC {'of an unknown writer' if known is None else known.name} {file.tail.software}".strip()


def _column(file: OrcLayout, leaf: OrcColumn, filters: set[str]) -> ColumnFacts:
    facts = ColumnFacts(leaf.name, leaf.type_name, "plaintext", None, " and ".join(sorted(filters)) or "none")
    if file.encryption is None or leaf.id not in file.tail.encrypted:
        return facts
    variants = file.encryption.variants_of(leaf.id)
    facts.protection = "column key" if variants else "masked"
    facts.key = ", ".join(f"master key {one.key.name}, version {one.key.version}" for one in variants) or None
    if "in clear" in filters:
        facts.exposed.append("Bloom filter")
    return facts
