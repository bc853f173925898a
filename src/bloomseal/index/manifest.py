"""The manifest: an index's secret, its runs, and for each file that it covers a *fact*.

A fact says: the file that had this path, inode, size and times holds, in these row groups, exactly the values whose
fingerprints stand in this run from this place on; of a large row group, on each of its pages. A fact never becomes
false; it only comes to be about no file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.cached import cached_property
from ..core.encryption import SecretKey
from ..core.errors import FormatError, UsageError
from .fingerprint import SECRET_BYTES, Fingerprints
from .numbers import as_numpy

_VERSION: Final = 2
_MOST_PLACES: Final = 1 << 62
MOST_STRIDE: Final = 256
"""Places of a row group."""
SHARD_ENTRIES: Final = 8_000_000
"""The most entries of a file: 32 MB or so."""
_NOT_UNDERSTOOD: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    OSError,
    pa.ArrowException,
)
"""What JSON and Arrow raise on values that somebody else made; Arrow calls much of it an OSError."""
_NAME: Final = re.compile(r"run-[0-9a-f]{16}-[0-9]{1,6}\.parquet")

FACTS: Final = pa.schema(
    [
        ("path", pa.string()),  # below the table's folder
        ("inode", pa.uint64()),
        ("size", pa.int64()),
        ("mtime", pa.int64()),  # nanoseconds
        ("ctime", pa.int64()),
        ("tag", pa.string()),  # of an object in a store
        ("groups", pa.int32()),  # row groups
        ("stride", pa.int32()),  # places of each: anywhere in it, and each of its pages
        ("doc", pa.int32()),  # number of the file's schema among the manifest's
        (
            "content",
            pa.binary(16),
        ),  # what stays the same when filters are attached or keys wrapped anew; zeros: unknown
        ("run", pa.string()),
        ("base", pa.int64()),  # first place of row group 0
    ]
)


class FileState(NamedTuple):
    """What tells a file from another one, or from the same one altered.

    Whoever writes to a local file, or puts another one in its place, changes inode, size or times. The change time is
    the file system's own; nobody sets it. An object in a store has size, time and tag (`ObjectVersion`).
    """

    inode: int
    size: int
    mtime: int
    ctime: int
    tag: str = ""


def state_of(status: os.stat_result) -> FileState:
    """The state of an open file, or of the one at a path."""
    return FileState(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Shard(NamedTuple):
    """One file of a run, pinned: another file under the same key must not take its place.

    Attributes:
        file: its name.
        unique: its aad_file_unique.
        size: in bytes.
        entries: in it.
        first, last: of them.
        keys: its data keys by the column that each is of, "" for the footer's, so that nobody asks the KMS for them
            who has opened the manifest; empty: the KMS is asked.
    """

    file: str
    unique: bytes
    size: int
    entries: int
    first: int
    last: int
    keys: Mapping[str, SecretKey] = {}


@dataclass(frozen=True)
class IndexRun:
    """Sorted entries ``fingerprint << place_bits | place``.

    Attributes:
        id: 16 hexadecimal digits, never used twice.
        place_bits: length of a place.
        places: how many row groups it is about; a place beyond is filling.
        shards: its files, ascending.
    """

    id: str
    place_bits: int
    places: int
    shards: tuple[Shard, ...]

    @property
    def entries(self) -> int:
        return sum(shard.entries for shard in self.shards)


@dataclass(frozen=True)
class Manifest:
    """An index, as one moment has it.

    Attributes:
        path: of the leaf column in the schema.
        secret: what fingerprints are keyed with.
        bits: length of a fingerprint.
        false_places: row groups in which a value that is nowhere is expected, in the whole table.
        pad: runs are filled up to a power of two.
        max_keys: the most values for which one query asks the index; None: any number.
        runs: in the order in which they were made.
        facts: a table of schema `FACTS`; one row per path.
        docs: schemas of the files, each as a Parquet file without rows.
        retired: name of a file that no run has any more → when it was left, seconds since 1970.
    """

    path: tuple[str, ...]
    secret: bytes = field(repr=False)
    bits: int
    false_places: float
    pad: bool = False
    max_keys: int | None = None
    runs: tuple[IndexRun, ...] = ()
    facts: pa.Table = field(default_factory=FACTS.empty_table, repr=False, compare=False)
    docs: tuple[bytes, ...] = field(default=(), repr=False)
    retired: dict[str, float] = field(default_factory=dict)

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "an index's manifest is not pickled: it holds a secret", hint="open the table where it is used"
        )

    @property
    def column(self) -> str:
        return ".".join(self.path)

    @property
    def entries(self) -> int:
        return sum(run.entries for run in self.runs)

    @cached_property
    def fingerprints(self) -> Fingerprints:
        return Fingerprints(self.secret, self.bits)

    @cached_property
    def run_numbers(self) -> npt.NDArray[np.int64]:
        """Per fact the number of its run in `runs`; −1 where there is none."""
        # Not by dictionary_encode, which loads pyarrow.compute: a first look-up waits for that.
        numbers = {run.id: number for number, run in enumerate(self.runs)}
        return np.array([numbers.get(run, -1) for run in self.facts.column("run").to_pylist()], dtype=np.int64)

    @property
    def files(self) -> set[str]:
        """The names of the files of all runs."""
        return {shard.file for run in self.runs for shard in run.shards}

    def run(self, id: str) -> IndexRun:  # noqa: A002
        return next(run for run in self.runs if run.id == id)

    def with_facts(self, added: pa.Table, docs: Sequence[bytes], runs: Iterable[IndexRun] = ()) -> Manifest:
        """With new facts, each in the place of an older one about the same path; without the runs whose last fact goes.

        Args:
            added: its ``doc`` counts in `docs`, of which those that are named are taken over.
        """
        known = {doc: number for number, doc in enumerate(self.docs)}
        listed = added.column("doc").to_pylist()
        numbers = {number: known.setdefault(docs[number], len(known)) for number in dict.fromkeys(listed)}
        place = FACTS.get_field_index("doc")
        renumbered = pa.array([numbers[number] for number in listed], pa.int32())
        added = added.set_column(place, FACTS.field("doc"), renumbered)
        paths = set(added.column("path").to_pylist())
        kept = pa.array([path not in paths for path in self.facts.column("path").to_pylist()], pa.bool_())
        facts = pa.concat_tables([self.facts.filter(kept), added]).combine_chunks()
        gone = {*self.facts["run"].to_pylist()} - {*facts["run"].to_pylist()}
        every = tuple(run for run in (*self.runs, *runs) if run.id not in gone)
        return replace(self, facts=facts, docs=tuple(known), runs=every)

    # How it is stored ------------------------------------------------------------------------------------------------

    def to_values(self) -> list[bytes]:
        """The values of the manifest file's only column: head, facts, schemas."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FACTS) as writer:
            writer.write_table(self.facts)
        head = {
            "version": _VERSION,
            "path": self.path,
            "secret": self.secret.hex(),
            "bits": self.bits,
            "false_places": self.false_places,
            "pad": self.pad,
            "max_keys": self.max_keys,
            "runs": [{**run.__dict__, "shards": list(map(_told, run.shards))} for run in self.runs],
            "retired": self.retired,
        }
        return [json.dumps(head).encode(), sink.getvalue().to_pybytes(), *self.docs]

    @classmethod
    def from_values(cls, values: Sequence[bytes]) -> Manifest:
        """The reverse.

        Raises:
            FormatError: no such values: whoever holds the column's key wrote something else.
        """
        try:
            head: dict[str, Any] = json.loads(values[0])
            if head["version"] != _VERSION:
                raise FormatError(f"an index of version {head['version']}", hint="index rebuild")
            facts = pa.ipc.open_stream(pa.py_buffer(values[1])).read_all()
            # Arrow itself trusts the offsets and lengths in it, and would read beyond its memory.
            facts.validate(full=True)
            made = cls(
                tuple(head["path"]),
                bytes.fromhex(head["secret"]),
                int(head["bits"]),
                float(head["false_places"]),
                bool(head["pad"]),
                None if head["max_keys"] is None else int(head["max_keys"]),
                tuple(map(_run, head["runs"])),
                facts,
                tuple(values[2:]),
                {str(name): float(when) for name, when in head["retired"].items() if _NAME.fullmatch(name)},
            )
        except _NOT_UNDERSTOOD:
            raise FormatError("the index's manifest can't be understood", hint="index rebuild") from None
        made.check()
        return made

    def check(self) -> None:
        """Whether it makes sense.

        Raises:
            FormatError: it does not.
        """
        runs = {run.id: run for run in self.runs}
        sound = len(self.secret) == SECRET_BYTES and 1 <= self.bits <= 60 and self.facts.schema.equals(FACTS)
        sound = sound and len(runs) == len(self.runs)
        sound = sound and all(
            0 <= run.place_bits <= 62 - self.bits
            and 0 <= run.places <= _MOST_PLACES
            and all(0 <= one.entries <= SHARD_ENTRIES and 0 <= one.first <= one.last < 1 << 63 for one in run.shards)
            for run in self.runs
        )
        sound = sound and all(_NAME.fullmatch(name) for name in self.files)
        sound = sound and not any(self.facts.column(name).null_count for name in FACTS.names)
        if sound and len(self.facts):
            run = self.run_numbers
            told = map(as_numpy, map(self.facts.column, ("base", "groups", "stride", "doc")))
            base, groups, stride, doc = (column.astype(np.int64) for column in told)  # whose products must not wrap
            sound = bool((run >= 0).all())
            places = np.array([one.places for one in self.runs])
            sound = sound and bool(
                ((base >= 0) & (groups >= 0) & (base <= places[run] - groups * stride)).all()
                and ((stride >= 1) & (stride <= MOST_STRIDE)).all()
                and ((doc >= 0) & (doc < len(self.docs))).all()
            )
        if not sound:
            raise FormatError("the index's manifest contradicts itself", hint="index rebuild")


def _told(shard: Shard) -> dict[str, Any]:
    keys = {column: key.reveal().hex() for column, key in shard.keys.items()}
    # The lowest of many fingerprints has fewer digits: all have as many here, so that the size tells nothing of it.
    ends = {"first": f"{shard.first:019}", "last": f"{shard.last:019}"}
    return {**shard._asdict(), **ends, "unique": shard.unique.hex(), "keys": keys}


def _run(given: dict[str, Any]) -> IndexRun:
    shards = (
        Shard(
            str(one["file"]),
            bytes.fromhex(one["unique"]),
            **{name: int(one[name]) for name in ("size", "entries", "first", "last")},
            keys={str(column): SecretKey(bytes.fromhex(key)) for column, key in one["keys"].items()},
        )
        for one in given["shards"]
    )
    return IndexRun(str(given["id"]), int(given["place_bits"]), int(given["places"]), tuple(shards))
