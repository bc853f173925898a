"""Generated histories of a table and its indexes: whatever happened, a look-up finds what a scan finds.

Keys come from a small domain, so that the same value is in many files; two columns have an index, one of them changes
its width. Kills are simulated: the process "dies" at a named point, and nothing that would have tidied up runs.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import bloomseal as bs
from bloomseal.index import commit, update
from bloomseal.index.folder import IndexFolder
from bloomseal.index.runs import writer

KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"k": b"c" * 16, "s": b"d" * 16}}
ENCRYPTION = bs.EncryptionSpec(**KEYS)
DECRYPTION = bs.DecryptionSpec(bs.ExplicitKeys(**KEYS))
DOMAIN = 60
FAULTS = ("index shard", "index run", "index before manifest", "index manifest")


class Killed(BaseException):
    """The process is gone."""


class History:
    """One table, and what happens to it.

    Args:
        root: an empty folder.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.root = root / "t"
        self.root.mkdir()
        self.kept = root / "kept"
        self.kept.mkdir()
        self.count = 0
        self.told: list[str] = []
        self.read: dict[Any, set[Any]] = {}
        self.unopened = 0
        self.opened: list[tuple[bs.SealedTable, bs.SealedTable]] = []
        self.append()

    # The table -------------------------------------------------------------------------------------------------------

    def rows(self, *, size: int | None = None) -> pa.Table:
        size = size or self.draw.choice([0, 5, 12, 30, 30])  # a file without rows has no row groups
        ks = [self.draw.choice([None, *range(DOMAIN)]) for _ in range(size)]
        columns: dict[str, Any] = {"k": pa.array(ks, self.draw.choice([pa.int32(), pa.int64()])), "n": range(size)}
        if self.draw.random() < 0.8:
            columns["s"] = [f"v{self.draw.randrange(DOMAIN):02d}" for _ in range(size)]
        return pa.table(columns)

    def write(self, path: Path, rows: pa.Table) -> None:
        named = {name: key for name, key in KEYS["column_keys"].items() if name in rows.column_names}
        spec = bs.EncryptionSpec(footer_key=KEYS["footer_key"], column_keys=named)
        filters = [name for name in named if rows.num_rows != 12]
        # Pages of three rows, which the index tells apart; of other files it tells row groups.
        small: dict[str, Any] = {"use_dictionary": False, "max_rows_per_page": 3, "write_batch_size": 1}
        how = small if rows.num_rows == 30 else {}
        bs.write_table(rows, path, encryption=spec, bloom_filters=filters, row_group_size=10, compression="NONE", **how)

    def files(self) -> list[Path]:
        return sorted(self.root.glob("*.parquet"))

    def one(self) -> Path:
        return self.draw.choice(self.files())

    def append(self) -> None:
        self.count += 1
        self.write(self.root / f"{self.count:03d}.parquet", self.rows())

    def turned(self, path: Path) -> pa.Table:
        """The file's rows with every key another one, in a file that is as large to the byte."""
        with bs.open_file(path, decryption=DECRYPTION) as file:
            rows = file.read()
        keys = [None if k is None else (k + 1) % DOMAIN for k in rows.column("k").to_pylist()]
        return rows.set_column(0, "k", pa.array(keys, rows.schema.field("k").type))

    def replace(self) -> None:
        """Another file of the same name, the same size as a rule, and the same time."""
        path = self.one()
        before = path.stat()
        self.write(path, self.turned(path))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def overwrite(self) -> None:
        """Other bytes in the same inode, as many as a rule, and the time put back."""
        path, other = self.one(), self.kept / "other.parquet"
        self.write(other, self.turned(path) if self.draw.random() < 0.7 else self.rows())
        before = path.stat()
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(other.read_bytes())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def delete(self) -> None:
        if len(self.files()) > 1:
            self.one().unlink()

    def swap(self) -> None:
        """Two files exchange their names."""
        one, other, aside = self.one(), self.one(), self.root / "x.tmp"
        if one != other:
            one.rename(aside)
            other.rename(one)
            aside.rename(other)

    def rekey(self) -> None:
        path = self.one()
        with bs.open_file(path, decryption=DECRYPTION) as file:
            named = {name: key for name, key in KEYS["column_keys"].items() if name in file.columns}
        spec = bs.EncryptionSpec(footer_key=KEYS["footer_key"], column_keys=named)
        bs.rekey(path, decryption=DECRYPTION, encryption=spec)

    def attach(self) -> None:
        bs.attach_filters(self.one(), ["k"], decryption=DECRYPTION)

    # The indexes -----------------------------------------------------------------------------------------------------

    def table(self, use_index: Any = "auto") -> bs.SealedTable:
        return bs.open_table(self.root, decryption=DECRYPTION, use_index=use_index)

    def index(self) -> Any:
        return self.table().index(self.draw.choice(["k", "k", "s"]), encryption=ENCRYPTION)

    def update(self) -> None:
        index = self.index()
        if index.exists:
            index.update()
        elif any(index.column in bs.open_file(path, decryption=DECRYPTION).columns for path in self.files()):
            index.build(pad=self.draw.random() < 0.3)

    def compact(self) -> None:
        index = self.index()
        if index.exists:
            index.compact(everything=self.draw.random() < 0.5)

    def rebuild(self) -> None:
        index = self.index()
        if index.exists and any(index.column in bs.open_file(p, decryption=DECRYPTION).columns for p in self.files()):
            index.rebuild()

    def killed(self) -> None:
        point, after = self.draw.choice(FAULTS), self.draw.randrange(2)

        def die(name: str) -> None:
            nonlocal after
            if name == point:
                after -= 1
                if after < 0:
                    raise Killed

        held = [(module, module.fault_point) for module in (commit, writer, update)]
        remove = IndexFolder.remove
        try:
            for module, _ in held:
                module.fault_point = die  # type: ignore[attr-defined]
            IndexFolder.remove = lambda self, name: False  # type: ignore[method-assign]  # noqa: ARG005
            self.draw.choice([self.update, self.update, self.compact])()
        except Killed:
            self.told.append(f"  killed at {point}")
        finally:
            IndexFolder.remove = remove  # type: ignore[method-assign]
            for module, point_before in held:
                module.fault_point = point_before  # type: ignore[attr-defined]

    def two(self) -> None:
        """Somebody else commits, or the table changes, between one's hashing and one's commit."""
        inner = update.commit

        def later(*args: Any, **options: Any) -> Any:
            update.commit = inner
            self.append()
            self.draw.choice([self.update, self.compact, self.replace])()
            return inner(*args, **options)

        update.commit = later
        try:
            self.update()
        finally:
            update.commit = inner

    def reader(self) -> None:
        """Tables that were opened now are asked later."""
        pair = self.table(), self.table("never")
        for table in pair:
            self.ask(table, 1)
        self.opened.append(pair)

    # Attacks ---------------------------------------------------------------------------------------------------------

    def parts(self) -> list[Path]:
        return sorted(self.root.glob("_bloomseal_index/*/*.parquet"))

    def keep(self) -> None:
        if (self.root / "_bloomseal_index").exists():
            place = self.kept / f"{self.draw.randrange(2)}"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self.root / "_bloomseal_index", place)

    def roll_back(self) -> None:
        """Some of the index's files, or all of them, as they once were."""
        for place in sorted(self.kept.glob("[01]")):
            for path in sorted(place.rglob("*.parquet")):
                if self.draw.random() < 0.7:
                    target = self.root / "_bloomseal_index" / path.relative_to(place)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target)

    def mix(self) -> None:
        """One file of an index in the place of another."""
        if len(parts := self.parts()) > 1:
            shutil.copy(*self.draw.sample(parts, 2))

    def damage(self) -> None:
        if parts := self.parts():
            path = self.draw.choice(parts)
            data = bytearray(path.read_bytes())
            if self.draw.random() < 0.3:
                del data[self.draw.randrange(len(data)) :]
            else:
                data[self.draw.randrange(len(data))] ^= 1 << self.draw.randrange(8)
            path.write_bytes(data)

    def lose(self) -> None:
        if parts := self.parts():
            self.draw.choice(parts).unlink()

    def values(self, path: str, column: str) -> set[Any]:
        """What a file holds, read without filters."""
        now = Path(path).stat()
        name = path, column, now.st_ino, now.st_ctime_ns, now.st_size
        if name not in self.read:
            with bs.open_file(path, decryption=DECRYPTION) as file:
                has = column in file.columns
                self.read[name] = set(file.read([column]).column(column).to_pylist()) if has else set()
        return self.read[name]

    # Play ------------------------------------------------------------------------------------------------------------

    def play(self, steps: int, times: int = 4) -> int:
        """So many things happen, and look-ups are held against scans after each. Returns the number of comparisons."""
        everyday: list[Callable[[], None]] = [
            self.append, self.append, self.append, self.replace, self.overwrite, self.delete, self.swap, self.rekey,
            self.attach, self.update, self.update, self.update, self.compact, self.rebuild, self.killed, self.two,
            self.reader, self.keep,
        ]  # fmt: skip
        attacks: list[Callable[[], None]] = [self.roll_back, self.mix, self.damage, self.lose]
        asked = 0
        self.update()
        for step in range(steps):
            attack = step > steps // 2 and self.draw.random() < 0.3
            act = self.draw.choice(attacks if attack else everyday)
            self.told.append(act.__name__)
            try:
                act()
            except bs.BloomsealError as error:
                # A damaged index can't be updated or compacted: it says so. The table's own verbs have to work.
                if act.__name__ not in ("update", "compact", "killed", "two", "rebuild"):
                    raise
                self.told.append(f"  refused: {error}")
            asked += self.compare(self.table(), self.table("never"), times)
            for pair in self.opened:
                asked += self.compare(*pair, times=1)
        return asked

    def ask(self, table: bs.SealedTable, seed: int) -> Any:
        draw = random.Random(seed)
        column = draw.choice(["k", "s"])
        one: Callable[[], Any] = (lambda: draw.randrange(DOMAIN + 5)) if column == "k" else (
            lambda: f"v{draw.randrange(DOMAIN + 5):02d}"
        )  # fmt: skip
        other = (
            [("s", "==", f"v{draw.randrange(DOMAIN):02d}")] if column == "k" else [("k", "==", draw.randrange(DOMAIN))]
        )
        filters: Any = draw.choice([
            [(column, "==", one())],
            [(column, "in", [one() for _ in range(draw.randrange(5))])],
            [(column, "==", one()), ("n", "<", 20)],
            [[(column, "==", one()), *other], [(column, "==", one())]],
            [(column, "==", one()), *other],
            [[(column, "==", one())], [("n", ">=", 28)]],
                [[(column, "==", one()), ("n", "<", 29)], [(column, "==", one()), ("n", ">=", 1)]],
        ])  # fmt: skip
        values = [one() for _ in range(4)]
        try:
            how = draw.randrange(3)
            if how == 2:
                return column, values, table.maybe_present(column, values)
            return table.read(None, filters) if how == 0 else table.scan(None, filters).read_all()
        except bs.BloomsealError as error:
            return type(error)

    def compare(self, indexed: bs.SealedTable, scanned: bs.SealedTable, times: int = 4) -> int:
        for _ in range(times):
            seed = self.draw.randrange(1 << 30)
            found, wanted = self.ask(indexed, seed), self.ask(scanned, seed)
            self.unopened += indexed.stats.files_unopened
            if isinstance(wanted, pa.Table):
                assert isinstance(found, pa.Table), (found, self.told)
                assert found.schema.equals(wanted.schema, check_metadata=False), (
                    found.schema,
                    wanted.schema,
                    self.told,
                )
                assert found.equals(wanted), self.told
            elif isinstance(wanted, tuple):
                assert isinstance(found, tuple), (found, self.told)
                column, values, maybe = found
                for number, path in enumerate(scanned.files):
                    there = self.values(path, column)
                    for which, value in enumerate(values):
                        assert maybe[number, which] or value not in there, (path, value, self.told)
            else:
                assert found == wanted, (found, wanted, self.told)
        return times
