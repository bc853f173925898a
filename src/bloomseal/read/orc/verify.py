"""Verify an ORC file: every index and filter parses; on request all stripes decode, and no filter denies its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.errors import BloomsealError, FormatError, KeyAccessError, PolicyError
from ...format.verify import VerifyReport
from ...orc.streams import StreamKind
from .truth import held_against_values

if TYPE_CHECKING:
    import pyarrow as pa

    from ...orc.layout import OrcLayout
    from .columns import Columns


def verify_orc(
    file: OrcLayout, columns: Columns, decode: Callable[[int, Sequence[int]], pa.Table], *, filters: bool = False
) -> VerifyReport:
    """Verify every stripe of an open file; one bad stripe does not hide the next. Nothing authenticates any of it.

    Args:
        decode: gives leaves of a stripe.
        filters: decode the stripes, and ask each filter for every value of its own row group.
    """
    report = VerifyReport(file.path, False, bool(file.tail.sealed))
    report.unauthenticated["footer"] += 1
    plain = []
    for index, stored in columns.stored.items():
        try:
            file.need_open(stored)
            plain.append(index)
        except KeyAccessError as error:
            report.no_key(stored.name, error)
        except BloomsealError as error:
            # Without ``allow_ctr`` nothing is opened. In clear it is none that was to be encrypted.
            if isinstance(error, PolicyError) and stored.id in file.tail.encrypted:
                report.inaccessible[stored.name] = error.what
            else:
                report.failed(error)
    for stripe in file.stripes:
        rows = None
        try:
            file.index(stripe.index)
            report.unauthenticated["stripe footer"] += 1
            if filters:
                rows = decode(stripe.index, plain)
                report.unauthenticated["stripe data"] += 1
        except BloomsealError as error:
            report.failed(error)
            continue
        for index in plain:
            try:
                _verify_column(file, stripe.index, index, columns, rows, report)
            except BloomsealError as error:
                report.failed(error.at(file=file.path, column=columns.stored[index].name, module=stripe.place))
    return report


def _verify_column(
    file: OrcLayout, stripe: int, index: int, columns: Columns, rows: pa.Table | None, report: VerifyReport
) -> None:
    """`rows`: where filters are to be asked for their values, the whole stripe."""
    stored, leaf = columns.stored[index], columns.leaves.leaves[index]
    streams = file.index(stripe)
    if (statistics := file.statistics(stripe, stored)) is not None:
        file.parsed(stripe, stored, statistics, range(streams.stripe.num_row_groups))
        report.unauthenticated["row index"] += 1
    if (stream := file.filter_stream(stripe, stored)) is None:
        return
    found = streams.filters(stream)
    report.unauthenticated["Bloom filter"] += len(found)
    why = file.why_untrusted(stored, stream, streams)
    if why is not None:
        name = f"{leaf.name}, stripe {stripe}: {StreamKind(stream.kind).name}"
        (report.notes if rows is None else report.filters_unasked).append(f"{name}, {why}")
        return
    if rows is None:
        return
    truths = held_against_values(file, stripe, stored, leaf, rows, found)
    for group, truth in enumerate(truths):
        if truth.wrong is not None:
            report.failed(
                FormatError(truth.wrong, row_group=group, column=leaf.name, module=f"filter, stripe {stripe}")
            )
        elif truth.unasked is not None:
            report.filters_unasked.append(f"{leaf.name}, stripe {stripe}, row group {group}: {truth.unasked}")
        else:
            report.filters_true += 1
