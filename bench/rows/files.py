"""Whole files: writing, looking up, verifying and converting."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs

from .. import floors
from ..jvm import spark
from ..timing import Comparison, Contender, Goal
from ..workspace import Workspace, row

_PIECE = 1 << 20
ARROW = "pyarrow, encrypted"
SPARK = "Spark, encrypted, warm"


@row("write")
def write(work: Workspace) -> Iterator[Comparison]:
    """Writing a table with sealed filters on two string columns."""
    folder, sealing, table = work.folder, work.keys.encryption(), work.table
    folded = {"ssn": bs.FilterSpec(fpp=0.01), "email": bs.FilterSpec(fpp=0.01)}
    frame: list[object] = []

    def by_arrow_synced() -> None:
        path = folder / "synced.parquet"
        work.arrow_write(path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    def by_spark() -> None:
        if not frame:
            pq.write_table(table, folder / "for-spark.parquet")
            frame.append(spark().cached(folder / "for-spark.parquet"))
        spark().write(frame[0], folder / "spark.parquet", work.size.row_group)

    def ours(name: str, filters: object) -> Contender:
        return Contender(
            name,
            lambda: work.write(folder / "written.parquet", encryption=sealing, bloom_filters=filters),
            ours=True,
            work=table.nbytes,
        )

    given, built = "Bloomseal, ndv given", "Bloomseal, built and folded"
    yield Comparison(
        f"write {work.size.rows:,} rows × {table.num_columns} columns, filters on two string columns",
        [
            ours(given, work.filters),
            ours(built, folded),
            ours("Bloomseal, no filters", None),
            Contender(f"{ARROW}, no filters", lambda: work.arrow_write(folder / "arrow.parquet"), work=table.nbytes),
            Contender(
                f"{ARROW}, no filters, told which dictionary pays",
                lambda: work.arrow_write(folder / "arrow.parquet", dictionaries=["city"]),
                work=table.nbytes,
            ),
            Contender(f"{ARROW}, no filters, fsync", by_arrow_synced, work=table.nbytes),
            Contender(SPARK, by_spark, work=table.nbytes, warm_up=min(work.size.jvm_warm_up, 4), elsewhere=True),
        ],
        [
            Goal(given, f"{ARROW}, no filters", 1.25, True, "≤ 1.25× pyarrow without filters, ndv given"),
            Goal(built, f"{ARROW}, no filters", 1.25, True, "≤ 1.25× pyarrow without filters, built and folded"),
            Goal(given, f"{ARROW}, no filters", 1.15, True, "≤ 1.15× pyarrow without filters, ndv given"),
            Goal(built, f"{ARROW}, no filters", 1.15, True, "≤ 1.15× pyarrow without filters, built and folded"),
            Goal(given, SPARK, 3, False, "≥ 3× faster than Spark"),
            Goal(given, SPARK, 3.5, False, "≥ 3.5× faster than Spark"),
        ],
        work_unit="B",
        repetitions=work.size.repetitions,
        note="Bloomseal syncs the file, reopens it and probes every filter before it takes its name; pyarrow does not. "
        "pyarrow by default tries a dictionary for every column and drops those that overflow; Bloomseal learns from "
        "the first row group. Told that only the city's pays, pyarrow saves that work too: compare with that line as well. "
        "Spark writes from its cache, filters included.",
    )


@row("lookup")
def lookup(work: Workspace) -> Iterator[Comparison]:
    """A point look-up in one file, opened afresh: a value that is there, and one that is not."""
    for what, value, rows in (("present", work.present, 1), ("absent", work.absent, 0)):
        ours = "Bloomseal"
        contenders = [
            Contender(ours, _reader(work.sealed, value, work), ours=True),
            Contender("Bloomseal, plaintext file", _reader(work.plain, value, None), ours=True),
            Contender(ARROW, _arrow(work.sealed, value, work)),
            Contender(
                SPARK,
                lambda value=value: spark().lookup(work.sealed, "ssn", value),
                warm_up=work.size.jvm_warm_up,
                elsewhere=True,
            ),
            Contender("DuckDB, plaintext file", _duckdb(work.plain, value)),
            Contender("DataFusion, plaintext file", _datafusion(work.plain, value)),
        ]
        floor = "the least of it"
        if rows:
            contenders.append(Contender(floor, floors.look_up(work.sealed, "ssn", value, work.keys.decryption)))
        goals = {
            "present": [
                Goal(ours, ARROW, 8, False, "≥ 8× faster than pyarrow's scan", floor),
                Goal(ours, ARROW, 20, False, "≥ 20× faster than pyarrow's scan", floor),
                Goal(ours, SPARK, 25, False, "≥ 25× faster than Spark with filters", floor),
                Goal(ours, "DuckDB, plaintext file", 1.5, True, "≤ 1.5× DuckDB on the plaintext file", floor),
            ],
            "absent": [Goal(ours, SPARK, 20, False, "≥ 20× faster than Spark with filters")],
        }[what]
        yield Comparison(
            f"point look-up, {what}, {-(-work.size.rows // work.size.row_group)} row groups, all columns",
            contenders,
            goals,
            answer=rows,
            repetitions=work.size.short_repetitions,
            note="The same sealed file for Bloomseal, pyarrow and Spark, the key encryption keys in each one's cache; the "
            "plaintext file has the same row groups and filters."
            + (
                " *The least of it*: ten filters and the pages that hold the answer are read, opened, inflated and decoded."
                * rows
            ),
        )


def _reader(path: Path, value: str, work: Workspace | None) -> Callable[[], int]:
    decryption = work.keys.decryption if work else None
    return lambda: bs.read_table(path, where=[("ssn", "==", value)], decryption=decryption).num_rows


def _arrow(path: Path, value: str, work: Workspace) -> Callable[[], int]:
    def run() -> int:
        keys = work.keys.arrow_decryption()
        filters = [("ssn", "==", value)]
        rows: int = pq.read_table(path, filters=filters, decryption_properties=keys, use_threads=False).num_rows
        return rows

    return run


def _duckdb(path: Path, value: str) -> Callable[[], int]:
    state: list[object] = []

    def run() -> int:
        import duckdb

        if not state:
            state.append(duckdb.connect(config={"threads": 1}))
        connection = state[0]
        query = connection.execute("SELECT * FROM read_parquet(?) WHERE ssn = ?", [str(path), value])  # type: ignore[attr-defined]
        return len(query.fetchall())

    return run


def _datafusion(path: Path, value: str) -> Callable[[], int]:
    def run() -> int:
        from datafusion import SessionConfig, SessionContext, col, lit

        context = SessionContext(SessionConfig().with_target_partitions(1))
        batches = context.read_parquet(str(path)).filter(col("ssn") == lit(value)).collect()
        return sum(batch.num_rows for batch in batches)

    return run


@row("verify")
def verify(work: Workspace) -> Iterator[Comparison]:
    """Opening every module of a file, and converting it, beside AES-GCM on one big buffer."""
    path = work.uniform
    size = path.stat().st_size
    cipher, nonce = AESGCM(b"k" * 16), b"n" * 12
    plaintext = os.urandom(size)
    sealed = cipher.encrypt(nonce, plaintext, b"")
    out, sealed_out = bytearray(size), bytearray(size + 16)

    def opened() -> bool:
        return bs.verify(path, decryption=work.keys.decryption).ok

    piece = cipher.encrypt(nonce, plaintext[:_PIECE], b"")
    pieces, window, window_out = work.path("pieces"), bytearray(len(piece)), bytearray(_PIECE)
    pieces.write_bytes(piece * -(-size // len(piece)))

    def read_and_opened() -> bool:
        with pieces.open("rb", buffering=0) as file:
            while file.readinto(window):
                cipher.decrypt_into(nonce, window, b"", window_out)
        return True

    into, fresh = "cryptography, one buffer, output reused", "cryptography, one buffer, output allocated"
    floor = "read and opened a megabyte at a time, buffers reused"
    yield Comparison(
        f"verify: open all modules of a file of {size / 1e6:.1f} MB, uniform encryption",
        [
            Contender("Bloomseal verify", opened, ours=True, work=size),
            Contender(into, lambda: cipher.decrypt_into(nonce, sealed, b"", out) > 0, work=size),
            Contender(fresh, lambda: len(cipher.decrypt(nonce, sealed, b"")) > 0, work=size),
            Contender(floor, read_and_opened, work=size),
        ],
        [
            Goal(
                "Bloomseal verify", into, 1 / 0.6, True, "≥ 0.6× the cipher's rate: time ≤ 1.67×, output reused", floor
            ),
            Goal("Bloomseal verify", fresh, 1 / 0.6, True, "≥ 0.6× the cipher's rate: time ≤ 1.67×, output allocated"),
            Goal(
                "Bloomseal verify",
                into,
                1 / 0.75,
                True,
                "≥ 0.75× the cipher's rate: time ≤ 1.33×, output reused",
                floor,
            ),
            Goal(
                "Bloomseal verify", fresh, 1 / 0.75, True, "≥ 0.75× the cipher's rate: time ≤ 1.33×, output allocated"
            ),
        ],
        answer=True,
        work_unit="B",
        repetitions=work.size.short_repetitions,
        note="A buffer allocated for the output costs page faults, which is most of its time; both are shown. The peers of one "
        "buffer have the file in memory already; the last line is the least that any verifier has to do.",
    )
    unsealed, sealed_path = work.path("unsealed.parquet"), work.path("resealed.parquet")
    uniform = work.keys.encryption(columns=())
    least_unseal, least_seal = "the least of unsealing", "the least of sealing"
    peers: dict[str, tuple[Path, Callable[[], bytes | bytearray]]] = {
        "decrypt_into and write": (unsealed, lambda: (cipher.decrypt_into(nonce, sealed, b"", out), out)[1]),
        "decrypt and write": (unsealed, lambda: cipher.decrypt(nonce, sealed, b"")),
        "encrypt_into and write": (
            sealed_path,
            lambda: (cipher.encrypt_into(nonce, plaintext, b"", sealed_out), sealed_out)[1],
        ),
        "encrypt and write": (sealed_path, lambda: cipher.encrypt(nonce, plaintext, b"")),
    }
    yield Comparison(
        "convert: unseal and seal the same file",
        [
            Contender(
                "Bloomseal unseal",
                lambda: bs.unseal_file(path, unsealed, decryption=work.keys.decryption) and None,
                ours=True,
                work=size,
            ),
            Contender(
                "Bloomseal seal",
                lambda: bs.seal_file(work.plain, sealed_path, encryption=uniform) and None,
                ours=True,
                work=size,
            ),
            *(Contender(name, functools.partial(_write, *peer), work=size) for name, peer in peers.items()),
            Contender(least_unseal, floors.convert(path, unsealed, _PIECE, seal=False), work=size),
            Contender(least_seal, floors.convert(work.plain, sealed_path, _PIECE, seal=True), work=size),
            Contender("copy of the file, synced", lambda: _copy(path, unsealed, window), work=size),
            Contender(
                f"cryptography decrypt, {into.partition(', ')[2]}",
                lambda: cipher.decrypt_into(nonce, sealed, b"", out) and None,
                work=size,
            ),
        ],
        [
            Goal(
                f"Bloomseal {'unseal' if 'decrypt' in peer else 'seal'}",
                peer,
                1 / 0.75,
                True,
                f"{'unseal' if 'decrypt' in peer else 'seal'} ≥ 0.75× {peer}: time ≤ 1.33×",
                least_unseal if "decrypt" in peer else least_seal,
            )
            for peer in peers
        ],
        work_unit="B",
        repetitions=work.size.short_repetitions,
        note="The peers write and sync a file of the same size too, from memory; the least of it also reads the file, and reads again what "
        "it wrote, which is verified before it gets its name. Those with *_into* reuse a buffer. The last line is the cipher alone.",
    )


def _write(path: Path, make: Callable[[], bytes | bytearray]) -> None:
    made = make()
    with path.open("wb") as file:
        file.write(made)
        file.flush()
        os.fsync(file.fileno())


def _copy(path: Path, target: Path, window: bytearray) -> None:
    with path.open("rb", buffering=0) as source, target.open("wb", buffering=0) as file:
        while length := source.readinto(window):
            file.write(memoryview(window)[:length])
        os.fsync(file.fileno())


@row("footer")
def footer(work: Workspace) -> Iterator[Comparison]:
    """Probing one column of a wide file."""
    columns, groups = work.size.wide_columns, work.size.wide_groups
    path, column = wide_file(work, columns, groups)
    clear = work.path("wide-plain.parquet")
    with pq.ParquetWriter(clear, pq.read_schema(path, decryption_properties=work.keys.arrow_decryption())) as writer:
        writer.write_table(_wide_table(columns, groups), row_group_size=1)
    ours, peer = "Bloomseal probe", "pyarrow read_metadata, the same file"
    yield Comparison(
        f"footer: probe one of {columns:,} columns in {groups} row groups",
        [
            Contender(ours, lambda: len(bs.probe(path, column, [-1], decryption=work.keys.decryption)), ours=True),
            Contender(
                peer,
                lambda: pq.read_metadata(path, decryption_properties=work.keys.arrow_decryption()).num_row_groups,
            ),
            Contender("pyarrow read_metadata, plaintext file", lambda: pq.read_metadata(clear).num_row_groups),
        ],
        [Goal(ours, peer, 3, True, "≤ 3× pyarrow"), Goal(ours, peer, 1.5, True, "≤ 1.5× pyarrow")],
        answer=groups,
        repetitions=work.size.short_repetitions,
        note="Bloomseal also opens one filter per row group; pyarrow reads the footer only.",
    )


def wide_file(work: Workspace, columns: int, groups: int) -> tuple[Path, str]:
    """An encrypted file of many columns and row groups of one row, with filters on the column in the middle."""
    path, column = work.path(f"wide-{columns}x{groups}.parquet"), f"c{columns // 2}"
    if not path.exists():
        encryption = work.keys.encryption(columns=(column,), complete=True)
        bs.write_table(
            _wide_table(columns, groups),
            path,
            encryption=encryption,
            bloom_filters={column: bs.FilterSpec(ndv=10)},
            row_group_size=1,
        )
    return path, column


def _wide_table(columns: int, groups: int) -> pa.Table:
    values = pa.array(range(groups), pa.int64())
    return pa.table({f"c{i}": values for i in range(columns)})
