"""The steps of the demonstration: write, look up, compare with pyarrow, verify, attack, look up in many files. Every
number is measured.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from ..audit.facts.files.raw_scan import FILTER_HEADER
from ..core.decryption import DecryptionSpec
from ..core.errors import BloomsealError
from ..core.keys.explicit import ExplicitKeys
from ..core.parquet.walk import Walk
from ..core.sbbf import ColumnType, LogicalType, PhysicalType, SplitBlockBloomFilter, hash_array
from ..core.verdict import Verdict
from ..keytools.keyring.keyring import Keyring
from ..keytools.tools import KeyTools
from ..policy import Policy
from ..read.open import inspect_file, open_file
from ..read.parquet import need_parquet
from ..sbbf import FilterSpec
from ..specs import EncryptionSpec
from ..table.open import open_table
from ..write.writer import FileWriter
from .people import COLUMN_KEYS, FILTERED, FPP, SCHEMA, People, area_numbers
from .spark_trial import SparkTrial

_TEXT: Final = ColumnType(PhysicalType.BYTE_ARRAY, None, LogicalType("string"))
_LOOKUPS: Final = 5
_LISTED: Final = 200_000
_AREA: Final = 219
_ANSWER: Final = ["name", "ssn", "diagnosis"]

Say = Callable[[str], None]
_FILES: Final = 400
_ROWS: Final = 500
_GROUPS: Final = 5
_STEPS: Final = 3
_TIMES: Final = 3


class Trial:
    """The demonstration's steps, in order; `results` grows with each.

    Args:
        folder: where the files go.
        rows: people in the table.
        row_group_size: people per row group.
        seed: of the generator.
        say: called with what is about to be done.
    """

    def __init__(self, folder: Path, rows: int, row_group_size: int, seed: int, say: Say) -> None:
        self.folder, self.rows, self.row_group_size, self.say = folder, rows, row_group_size, say
        self.people = People(seed)
        self.sealed, self.clear = folder / "people.parquet", folder / "people-in-clear.parquet"
        self.keyring = Keyring(folder / "keyring.json", create=True)
        held = {key.name for key in self.keyring.list()}
        for name in ("footer", "pii", "health"):
            if name not in held:
                self.keyring.create(name)
        self.tools = KeyTools(self.keyring)
        self.decryption = DecryptionSpec(self.tools)
        self.results: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """All steps; the results by name, times in seconds, sizes in bytes."""
        self._warm_up()
        self.write()
        self.look_up()
        self.verify()
        self.attack()
        kms = f"keyring://{self.keyring.path}"
        self.results["index"] = index_growth(self.folder, kms, self.people, self.rows, self.say)
        return self.results

    def _warm_up(self) -> None:
        """Kernels are compiled on first use on a machine, and libraries load threads: that belongs to no step."""
        self.say("preparing")
        self._write(self.clear, None, rows=self.row_group_size)
        hashes = hash_array(area_numbers(_AREA), _TEXT)
        FilterSpec(fpp=FPP).build(hashes).check_hashes(hashes)

    def write(self) -> None:
        """The same people twice: sealed, and with the filters in clear for the attacker."""
        encryption = EncryptionSpec("footer", COLUMN_KEYS, self.tools, complete=True)
        self.say(f"writing {self.rows:,} people, sealed")
        sealed = self._write(self.sealed, encryption)
        self.say("writing them again in plaintext, for the attacker")
        clear = self._write(self.clear, None)
        with open_file(self.sealed, decryption=self.decryption) as opened:
            filters = list(_filters(need_parquet(opened).walk))
            self.results["write"] = {
                "rows": opened.num_rows,
                "row_groups": opened.num_row_groups,
                "columns": len(opened.columns),
                "sealed_seconds": sealed,
                "sealed_bytes": self.sealed.stat().st_size,
                "plaintext_seconds": clear,
                "plaintext_bytes": self.clear.stat().st_size,
                "filters": len(filters),
                "filter_bytes": sum(length for _, _, length in filters),
            }

    def look_up(self) -> None:
        """Present and absent people, by Bloomseal and by pyarrow, each time opening the file anew."""
        present, absent = self._values()
        ways = {"probe": self._probe, "read": self._read, "pyarrow": self._pyarrow()}
        for name, values in (("present", present), ("absent", absent)):
            self.say(f"looking up {len(values)} {name} people, with Bloomseal and with pyarrow")
            seconds, found = {}, {}
            for how, look in ways.items():
                look(values[0])  # the key's unwrapping is cached by both
                timed = [_timed(partial(look, value)) for value in values]
                seconds[how] = statistics.median(elapsed for elapsed, _ in timed)
                found[how] = [answer for _, answer in timed]
            same = all(a.equals(b) for a, b in zip(found["read"], found["pyarrow"], strict=True))
            self.results[f"look_up_{name}"] = {
                "values": len(values),
                "rows_found": sum(table.num_rows for table in found["read"]),
                "same_rows_as_pyarrow": same,
                "row_groups_to_read": statistics.mean(found["probe"]),
                **{f"{how}_seconds": least for how, least in seconds.items()},
                "times_faster": seconds["pyarrow"] / seconds["read"],
            }

    def spark(self) -> dict[str, Any]:
        """The same through Spark: see `SparkTrial.run`."""
        trial = SparkTrial(self.folder, self.clear, self.keyring, self.rows, self.row_group_size, self.say)
        return trial.run(*self._values())

    def _values(self) -> tuple[list[str], list[str]]:
        """Numbers of people in the table, and of others."""
        people = np.array([*_spread(self.rows), *range(self.rows, self.rows + _LOOKUPS)], np.uint64)
        numbers = self.people.ssn(people).to_pylist()
        return numbers[:-_LOOKUPS], numbers[-_LOOKUPS:]

    def verify(self) -> None:
        """Open every module."""
        self.say("opening and authenticating every module")

        def verified() -> Any:
            with open_file(self.sealed, decryption=self.decryption) as opened:
                return opened.verify()

        elapsed, report = _timed(verified)
        self.results["verify"] = {
            "complete": report.complete,
            "modules": sum(report.authenticated.values()),
            "failures": len(report.failures),
            "seconds": elapsed,
        }

    def attack(self) -> None:
        """What a thief without keys gets out of filters: in clear, and sealed."""
        around = min(_LISTED // 2, self.rows)
        listed = np.arange(self.rows - around, self.rows + around, dtype=np.uint64)
        members = listed < self.rows
        addresses = hash_array(self.people.email(listed), _TEXT)
        numbers = area_numbers(_AREA)
        self.say("attacking the filters in clear")
        in_clear = self._filters_of(self.clear, None, _body)
        elapsed, hits = _timed(lambda: _asked(in_clear["email"], addresses))
        self.results["attack_clear_emails"] = {**_score(hits, members), "seconds": elapsed}
        elapsed, hits = _timed(lambda: _asked(in_clear["ssn"], hash_array(numbers, _TEXT)))
        self.results["attack_clear_ssn"] = {**_score(hits, self._in_area(numbers)), "seconds": elapsed, "area": _AREA}

        self.say("attacking the sealed filters")
        # The attacker does not even know where the filters are; the demonstration tells him.
        as_if = self._filters_of(self.sealed, self.decryption, _cipher_body)
        self.results["attack_sealed"] = {
            "opened_without_keys": self._opens(None),
            "opened_with_a_wrong_key": self._opens(DecryptionSpec(ExplicitKeys(footer_key=os.urandom(16)))),
            "seen_without_keys": inspect_file(self.sealed).footer,
            "filter_headers_found_in_clear_file": _headers(self.clear),
            "filter_headers_found_in_sealed_file": _headers(self.sealed),
            "ciphertext_read_as_filter": _score(_asked(as_if["email"], addresses), members),
        }

    @staticmethod
    def _filters_of(
        path: Path, decryption: DecryptionSpec | None, body: Callable[[bytes], bytes]
    ) -> dict[str, list[SplitBlockBloomFilter]]:
        """Column → what `body` makes of its filters' bytes, taken for filters."""
        found: dict[str, list[SplitBlockBloomFilter]] = {}
        with open_file(path, decryption=decryption) as opened:
            for column, offset, length in _filters(need_parquet(opened).walk):
                raw = bytes(opened.source.read(offset, length))
                found.setdefault(column, []).append(SplitBlockBloomFilter.from_bitset(body(raw)))
        return found

    def _write(self, path: Path, encryption: EncryptionSpec | None, *, rows: int | None = None) -> float:
        specs = {name: FilterSpec(fpp=FPP, ndv=self.row_group_size) for name in FILTERED}
        began = time.perf_counter()
        generating = 0.0
        with FileWriter(
            path,
            SCHEMA,
            encryption=encryption,
            bloom_filters=specs,
            row_group_size=self.row_group_size,
            compression="zstd",
        ) as writer:
            mark = time.perf_counter()
            for table in self.people.tables(rows or self.rows, self.row_group_size):
                generating += time.perf_counter() - mark
                writer.write_table(table)
                mark = time.perf_counter()
        return time.perf_counter() - began - generating

    def _probe(self, value: str) -> int:
        with open_file(self.sealed, decryption=self.decryption) as opened:
            return sum(verdict is not Verdict.ABSENT for (verdict,) in opened.probe("ssn", [value]))

    def _read(self, value: str) -> pa.Table:
        with open_file(self.sealed, decryption=self.decryption) as opened:
            return opened.read(_ANSWER, [("ssn", "==", value)])

    def _pyarrow(self) -> Callable[[str], pa.Table]:
        """pyarrow's own reader, with its own key tools over the same keyring."""
        factory = pe.CryptoFactory(lambda config: _PyarrowKms(config, self.keyring))
        config = pe.KmsConnectionConfig()
        read = pe.DecryptionConfiguration()

        def look(value: str) -> pa.Table:
            properties = factory.file_decryption_properties(config, read)
            return pq.read_table(
                self.sealed, columns=_ANSWER, filters=[("ssn", "==", value)], decryption_properties=properties
            )

        return look

    def _opens(self, decryption: DecryptionSpec | None) -> str:
        try:
            with open_file(self.sealed, decryption=decryption):
                return "opened"
        except BloomsealError as error:
            return type(error).__name__

    def _in_area(self, numbers: pa.Array) -> npt.NDArray[np.bool_]:
        import pyarrow.compute as pc

        everybody = self.people.ssn(np.arange(self.rows, dtype=np.uint64))
        return np.asarray(pc.is_in(numbers, value_set=everybody))


class _PyarrowKms(pe.KmsClient):  # type: ignore[misc]
    """pyarrow's seam over the keyring."""

    def __init__(self, config: Any, keyring: Keyring) -> None:
        super().__init__()
        self.config, self.keyring = config, keyring

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return self.keyring.wrap_key(key_bytes, master_key_identifier).encode()

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        text = wrapped_key.decode() if isinstance(wrapped_key, bytes) else wrapped_key
        return self.keyring.unwrap_key(text, master_key_identifier)


def _spread(rows: int) -> list[int]:
    return [int(rows * (2 * i + 1) / (2 * _LOOKUPS)) for i in range(_LOOKUPS)]


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = function()
    return time.perf_counter() - began, answer


def _filters(walk: Walk) -> Iterator[tuple[str, int, int]]:
    """Column, offset and length of every filter."""
    for group in range(len(walk.footer.row_groups)):
        for chunk in walk.chunks(group):
            if (found := walk.filter(chunk)) is not None:
                yield chunk.leaf.name, found.offset, found.length


def _body(raw: bytes) -> bytes:
    """The bitset behind a header in clear."""
    match = FILTER_HEADER.match(raw)
    assert match is not None  # noqa: S101 - it was written in this run
    return raw[match.end() :]


def _cipher_body(raw: bytes) -> bytes:
    """The bitset's ciphertext, without length prefix, nonce and tag."""
    header = 4 + int.from_bytes(raw[:4], "little")
    return raw[header + 16 : -16]


def _asked(filters: list[SplitBlockBloomFilter], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    hits = np.zeros(len(hashes), dtype=np.bool_)
    for one in filters:
        hits |= one.check_hashes(hashes)
    return hits


def _score(hits: npt.NDArray[np.bool_], members: npt.NDArray[np.bool_]) -> dict[str, int]:
    return {
        "candidates": len(hits),
        "in_the_table": int(members.sum()),
        "confirmed": int(hits.sum()),
        "rightly": int((hits & members).sum()),
        "wrongly": int((hits & ~members).sum()),
    }


def _headers(path: Path) -> int:
    """Bloom filter headers in clear, wherever they stand in the file's bytes."""
    return sum(1 for _ in FILTER_HEADER.finditer(path.read_bytes()))


def index_growth(folder: Path, kms: str, people: People, rows: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A table grows by small files, and one person who is not in it is looked up by either way.

    Args:
        folder: where the table is made, and removed.
        kms: URI of a keyring with the master keys ``footer`` and ``pii``.
        rows: of the demonstration: the table has no more of them.

    Returns:
        Per step `files`, and seconds `with_index` and `without`, with the filters alone: the least of three.
    """
    column = {"key": "pii", "filter": {"fpp": FPP}, "index": True}
    tables = {"people": {"footer_key": "footer", "columns": {"ssn": column}}}
    policy = Policy.from_dict({"version": 1, "kms": kms, "tables": tables}).for_table("people")
    most = min(_FILES, max(rows // _ROWS, 4))
    told = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="index-") as root:
        done = 0
        for files in sorted({max(most >> 2 * step, 1) for step in range(_STEPS)}):
            say(f"looking one person up in {files} files, with a sealed index and without")
            for number in range(done, files):
                who = np.arange(number * _ROWS, (number + 1) * _ROWS, dtype=np.uint64)
                some = pa.table({"ssn": people.ssn(who), "id": pa.array(who)})
                with FileWriter(
                    Path(root) / f"{number}.parquet", some.schema, encryption=policy, row_group_size=_ROWS // _GROUPS
                ) as writer:
                    writer.write_table(some)
            done = files
            index = open_table(root, decryption=policy).index("ssn")
            index.update() if index.exists else index.build()
            absent = [("ssn", "==", people.ssn(np.array([most * _ROWS], dtype=np.uint64))[0].as_py())]
            one: dict[str, Any] = {"files": files}
            ways: dict[str, Literal["require", "never"]] = {"with_index": "require", "without": "never"}
            for name, how in ways.items():
                table = open_table(root, decryption=policy, use_index=how)
                look = partial(table.read, where=absent)
                one[name] = min(_timed(look)[0] for _ in range(_TIMES))
            told.append(one)
    return told
