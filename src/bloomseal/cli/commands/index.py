"""``bloomseal index``: build, update, compact, rebuild, check, show or drop the sealed index of a column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from ...core.errors import UsageError
from ...index.sealed import SealedIndex
from ...index.update import UpdateReport
from ...policy import TablePolicy
from ...specs import EncryptionSpec
from ...table.open import open_table
from ..arguments.opening import WITHOUT_POLICY, OpeningOptions
from ..arguments.options import argument, option, options
from ..arguments.sealing import SealingOptions
from ..command import PATH, CommandGroup
from ..render import answer, progress


@click.group(
    cls=CommandGroup, short_help="Build and look after sealed indexes: which row groups of a table can hold a value."
)
def index() -> None:
    """Build and look after the sealed index of a column: which row groups of a whole table can hold a value.

    Reads and probes use an index without being asked to. It is sealed under the column's key, in the folder
    _bloomseal_index of the table, and never a reason to miss a row: a file that it does not cover, or that has changed
    since, is asked by its own filters.

    \b
    Examples:
      bloomseal index build lake/customers --column ssn --policy policy.toml --table customers
      bloomseal index update lake/customers --column ssn --policy policy.toml --table customers
    """


@dataclass
class _IndexColumn:
    """A column of a table."""

    folder: str = argument(type=PATH, metavar="TABLE")
    column: str = option("--column", required=True, metavar="COLUMN", help="Dotted path of the column.")


@dataclass
class _IndexToRead:
    """An index to look at."""

    place: _IndexColumn = field(default_factory=_IndexColumn)
    opening: OpeningOptions = field(default_factory=OpeningOptions)

    @property
    def index(self) -> SealedIndex:
        """It, opened."""
        decryption = self.opening.decryption([self.place.folder])
        return open_table(self.place.folder, decryption=decryption).index(self.place.column)


@dataclass
class _IndexToWrite:
    """An index to write, with what seals it."""

    place: _IndexColumn = field(default_factory=_IndexColumn)
    footer_key: str | None = option(
        "--footer-key", metavar="NAME", help="Master key of the footer, or id:KEY_ID of an explicit key."
    )
    column_key: str | None = option(
        "--column-key", metavar="NAME", help="Master key of the column; none: the footer's."
    )
    opening: OpeningOptions = field(default_factory=OpeningOptions)

    @property
    def index(self) -> SealedIndex:
        """It, opened."""
        return self.opened()[0]

    def opened(self) -> tuple[SealedIndex, TablePolicy | None]:
        """It, and the policy that says how it is sealed, if one does."""
        folder, column = self.place.folder, self.place.column
        decryption = self.opening.decryption([folder])
        if isinstance(decryption, TablePolicy):
            if self.footer_key or self.column_key:
                what = "the policy says which keys; --footer-key and --column-key go without"
                raise UsageError(what, hint=WITHOUT_POLICY)
            return open_table(folder, decryption=decryption).index(column, encryption=decryption), decryption
        named = () if self.column_key is None else (f"{column}={self.column_key}",)
        encryption: EncryptionSpec = SealingOptions(self.footer_key, named).spec(self.opening.keys)
        return open_table(folder, decryption=decryption).index(column, encryption=encryption), None


@dataclass
class _Sizing:
    """How large an index is; None: as the policy says, or the index that is there."""

    false_places: float | None = option(
        "--false-places",
        type=float,
        metavar="NUMBER",
        help="Row groups read for nothing, per value asked for, in the whole table (default: the policy's, or 0.001).",
    )
    max_keys: int | None = option(
        "--max-keys",
        type=click.IntRange(min=1),
        metavar="NUMBER",
        help="Queries for more values than so many ask the files' own filters (default: the policy's, or any number).",
    )
    pad: bool | None = option("--pad/--no-pad", default=None, help="Fill up, so that sizes tell less.")

    def of_new(self, policy: TablePolicy | None, column: str) -> dict[str, Any]:
        """The arguments of `SealedIndex.build`."""
        said = None if policy is None else policy.indexes().get(column)
        rest = (0.001, None, False) if said is None else (said.false_places, said.max_keys, said.pad)
        return {name: rest[at] if own is None else own for at, (name, own) in enumerate(vars(self).items())}


_reads = options(_IndexToRead, "reading")
_writes = options(_IndexToWrite, "writing")
_sized = options(_Sizing, "sizing")
_dry_run = click.option("--dry-run", is_flag=True, help="Tell which files would be hashed; write nothing.")


@index.command(short_help="Make the index.", first=("--column", "--policy", "--table", "--keyring", "--dry-run"))
@_writes
@_sized
@_dry_run
def build(writing: _IndexToWrite, sizing: _Sizing, dry_run: bool) -> int:
    """Make the index of COLUMN. Values are hashed straight from the encrypted files' pages; filters are not needed.

    Exit code: 0; 1 if files were left out, which look-ups ask by their own filters; 2 on errors.

    \b
    Examples:
      bloomseal index build lake/customers --column ssn --policy policy.toml --table customers
      bloomseal index build people --column ssn --keyring keys.json --footer-key footer --column-key pii
    """
    opened, policy = writing.opened()
    with progress("Hashing") as tell:
        report = opened.build(**sizing.of_new(policy, opened.column), dry_run=dry_run, progress=tell)
    return _tell(report, dry_run)


@index.command(
    short_help="Cover files that are new or were replaced.",
    first=("--column", "--policy", "--table", "--keyring", "--dry-run"),
)
@_writes
@_dry_run
def update(writing: _IndexToWrite, dry_run: bool) -> int:
    """Hash the files of TABLE that are new or have changed, and add them. Runs of like size are merged.

    \b
    Example:
      bloomseal index update lake/customers --column ssn --policy policy.toml --table customers
    """
    opened = writing.index
    with progress("Hashing") as tell:
        report = opened.update(dry_run=dry_run, progress=tell)
    return _tell(report, dry_run)


@index.command(
    short_help="Merge the index's runs.", first=("--column", "--policy", "--table", "--keyring", "--everything")
)
@click.option("--everything", is_flag=True, help="Into one, under fresh keys: after the master key was changed.")
@_writes
def compact(writing: _IndexToWrite, everything: bool) -> None:
    """Merge runs of like size, and drop what they hold about files that are gone. No value is hashed.

    \b
    Example:
      bloomseal index compact lake/customers --column ssn --policy policy.toml --table customers --everything
    """
    opened = writing.index
    with progress("Merging") as tell:
        report = opened.compact(everything=everything, progress=tell)
    answer(report.to_dict(), title=f"index of {report.column}")


@index.command(
    short_help="Make the index anew, under a new secret.",
    first=("--column", "--policy", "--table", "--keyring", "--dry-run"),
)
@_writes
@_sized
@_dry_run
def rebuild(writing: _IndexToWrite, sizing: _Sizing, dry_run: bool) -> int:
    """Hash every file again, under a new secret and fresh keys, whatever is there now. The old index serves until then.

    \b
    Example:
      bloomseal index rebuild lake/customers --column ssn --policy policy.toml --table customers
    """
    opened = writing.index
    with progress("Hashing") as tell:
        report = opened.rebuild(**vars(sizing), dry_run=dry_run, progress=tell)
    return _tell(report, dry_run)


@index.command(
    short_help="Hold the index against the files' values.",
    first=("--column", "--policy", "--table", "--keyring", "--sample"),
)
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Look at this share of the files only.",
)
@_reads
def check(reading: _IndexToRead, sample: float | None) -> int:
    """Hold the index against every value of the files that it covers.

    Exit code: 0 if it has all of them, 1 if it lacks one or a file could not be looked at, 2 on errors.

    \b
    Example:
      bloomseal index check lake/customers --column ssn --sample 0.1 --policy policy.toml --table customers
    """
    opened = reading.index
    with progress("Checking") as tell:
        report = opened.check(sample=sample, progress=tell)
    answer({**report.to_dict(), "ok": report.ok}, title=f"index of {report.column}")
    return 0 if report.ok else 1


@index.command(
    short_help="Tell what the index covers, and its size.",
    first=("--column", "--policy", "--table", "--keyring", "--passphrase-file"),
)
@_reads
def show(reading: _IndexToRead) -> None:
    """Tell how much of TABLE the index covers, its runs, and its size.

    \b
    Example:
      bloomseal index show lake/customers --column ssn --policy policy.toml --table customers
    """
    found = reading.index.show()
    answer(found.to_dict(), title=f"index of {found.column}")


@index.command(short_help="Remove the index.")
@options(_IndexColumn, "place")
@click.option("--dry-run", is_flag=True, help="Tell whether there is one; remove nothing.")
def drop(place: _IndexColumn, dry_run: bool) -> None:
    """Remove the index of COLUMN. Needs no key, and no file of the table is touched.

    \b
    Example:
      bloomseal index drop lake/customers --column ssn
    """
    column = place.column
    opened = open_table(place.folder).index(column)
    if dry_run:
        gone: list[str] = []
        there = opened.exists
    else:
        gone, there = opened.drop(), False
    answer({"column": column, "removed": gone, "there": there}, title=f"index of {column}")


def _tell(report: UpdateReport, dry_run: bool) -> int:
    answer({**report.to_dict(), "ok": report.ok, "dry_run": dry_run}, title=f"index of {report.column}")
    return 0 if report.ok or dry_run else 1
