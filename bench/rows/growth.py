"""How costs grow. Anything above linear is a defect."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

import bloomseal as bs
from bloomseal.audit import audit

from .. import data
from ..timing import Curve, best_of, on_cores
from ..workspace import Workspace, row
from .files import wide_file
from .many import many_files

_ROWS_PER_GROUP = 500
_FILTER_COLUMNS = 20


@row("growth")
def growth(work: Workspace) -> Iterator[Curve]:
    """Costs against what makes them grow; the fastest of a few runs for each point."""
    with on_cores(1):
        yield _row_groups(work)
        yield _files(work)
        yield _filter_columns(work)
        yield _footers(work)
        yield _audited(work)


def _row_groups(work: Workspace) -> Curve:
    series: dict[str, list[tuple[float, float]]] = {"Bloomseal": [], "pyarrow's scan": []}
    for groups in work.size.growth_groups:
        path = work.path(f"groups-{groups}.parquet")
        rows = groups * _ROWS_PER_GROUP
        bs.write_table(
            data.people(0, rows),
            path,
            encryption=work.keys.encryption(),
            bloom_filters={"ssn": bs.FilterSpec(fpp=0.0001, ndv=_ROWS_PER_GROUP)},
            row_group_size=_ROWS_PER_GROUP,
        )
        filters = [("ssn", "==", data.ssn(rows // 2))]

        def ours(path: object = path, filters: object = filters) -> None:
            bs.read_table(path, where=filters, decryption=work.keys.decryption)  # type: ignore[arg-type]

        def arrow(path: object = path, filters: object = filters) -> None:
            pq.read_table(path, filters=filters, decryption_properties=work.keys.arrow_decryption(), use_threads=False)

        series["Bloomseal"].append((groups, best_of(ours)))
        series["pyarrow's scan"].append((groups, best_of(arrow)))
    return Curve("point look-up against row groups of one file", "row groups", series)


def _files(work: Workspace) -> Curve:
    most = work.size.many_files
    paths = sorted(many_files(work, most).glob("*.parquet"))[:most]
    points = []
    for count in sorted({max(most // 100, 1), max(most // 20, 1), most // 4, most // 2, most}):
        filters = [("ssn", "==", data.ssn(0))]

        def ours(count: int = count, filters: object = filters) -> None:
            for path in paths[:count]:
                bs.read_table(path, where=filters, decryption=work.keys.decryption)

        points.append((float(count), best_of(ours)))
    return Curve("point look-up against files of five row groups", "files", {"Bloomseal": points})


def _filter_columns(work: Workspace) -> Curve:
    rows = min(work.size.rows, 200_000)
    names = [f"s{i:02d}" for i in range(_FILTER_COLUMNS)]
    table = pa.table({name: data.ssn_array(i * rows, rows) for i, name in enumerate(names)})
    points = []
    for count in work.size.growth_filters:
        filters = dict.fromkeys(names[:count], bs.FilterSpec(ndv=rows // 4))

        def ours(filters: dict[str, bs.FilterSpec] = filters) -> None:
            bs.write_table(
                table,
                work.path("filters.parquet"),
                encryption=work.keys.encryption(("s00",), complete=True),
                bloom_filters=filters,
                row_group_size=rows // 4,
            )

        points.append((float(count), best_of(ours)))
    return Curve(
        f"writing {rows:,} rows × {_FILTER_COLUMNS} string columns against columns with filters",
        "columns with filters",
        {"Bloomseal": points},
    )


def _footers(work: Workspace) -> Curve:
    series: dict[str, list[tuple[float, float]]] = {"Bloomseal probe": [], "pyarrow read_metadata": []}
    for columns, groups in work.size.growth_footers:
        path, column = wide_file(work, columns, groups)

        def ours(path: object = path, column: str = column) -> None:
            bs.probe(path, column, [-1], decryption=work.keys.decryption)  # type: ignore[arg-type]

        def arrow(path: object = path) -> None:
            pq.read_metadata(path, decryption_properties=work.keys.arrow_decryption())

        series["Bloomseal probe"].append((columns * groups, best_of(ours)))
        series["pyarrow read_metadata"].append((columns * groups, best_of(arrow)))
    return Curve("footer handling against columns × row groups", "column chunks", series)


def _audited(work: Workspace) -> Curve:
    """Small files: what an audit costs is per file, row group and column, not per row."""
    folder = work.path("audited-growth")
    folder.mkdir()
    rows, paths = 4 * _ROWS_PER_GROUP, []
    for number in range(max(work.size.growth_audit)):
        paths.append(folder / f"{number:05d}.parquet")
        bs.write_table(
            data.people(number * rows, rows),
            paths[-1],
            encryption=work.keys.encryption(),
            bloom_filters={"ssn": bs.FilterSpec(ndv=_ROWS_PER_GROUP)},
            row_group_size=_ROWS_PER_GROUP,
        )
    series: dict[str, list[tuple[float, float]]] = {}
    for count in work.size.growth_audit:
        for name, keys in (("without keys", None), ("with keys", work.keys.decryption.keys)):

            def ours(count: int = count, keys: object = keys) -> None:
                assert audit(paths[:count], keys=keys).files == count

            series.setdefault(f"Bloomseal, {name}", []).append((float(count), best_of(ours)))
    return Curve("audit against files of four row groups", "files", series)
