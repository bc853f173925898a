"""One mutant of a small file, asked everything: the right answer, or an error of ours; and never a false absent."""

from __future__ import annotations

import warnings
from typing import Any

import bloomseal as bs
from bloomseal.core.storage.source import Source
from bloomseal.read.parquet import ParquetFile
from support.mutants import Mutant, mutant
from support.small_files import FILTERED, KINDS, SSN_KEY, SmallFile, judge, small_file

__all__ = ["check"]


def check(kind: str, seed: int) -> None:
    """Ask the mutant of this number. Raises AssertionError for a wrong answer, or an error that is not ours."""
    small = small_file(kind)
    made = mutant(small, seed)
    if made.authentic:
        _only_errors_of_ours(made, small.decryption)
    else:
        judge(small, made.data, made.what, pages_too=not small.counter_pages)
        _one_columns_reader(small, made)


def _one_columns_reader(small: SmallFile, made: Mutant) -> None:
    """Who holds one column's key takes an unverified footer, and loses rows by it at most: no absent value was
    there.
    """
    keys = bs.ExplicitKeys(keys_by_id={"ks": SSN_KEY})
    spec = bs.DecryptionSpec(keys, allow_unverified_footer=True, allow_ctr=small.decryption.allow_ctr)
    answers = _only_errors_of_ours(made, spec)
    for column in {"ssn", "city"} - small.plaintext_columns:
        verdicts = answers.get(f"probe {column}")
        if verdicts is not None and len(verdicts) == 3:
            values = [bs.Verdict.ABSENT not in row[8 * group : 8 * group + 8] for group, row in enumerate(verdicts)]
            assert all(values), f"{made.what}: {column} has a false absent for the holder of its key"


def _only_errors_of_ours(made: Mutant, decryption: bs.DecryptionSpec) -> dict[str, Any]:
    answers = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bs.BloomsealWarning)
        try:
            file = ParquetFile(Source.memory(made.data), decryption)
        except bs.BloomsealError:
            return {}
        except Exception as error:
            raise AssertionError(f"{made.what}: open raised {error!r}") from error
        table = small_file(KINDS[0]).table
        uses = {f"probe {name}": lambda name=name: file.probe(name, table[name].to_pylist()) for name in FILTERED}
        uses |= {"read": file.read, "ssn": lambda: file.read(["ssn"], [("ssn", "==", "003-45-6789")])}
        uses |= {"verify": lambda: file.verify().to_dict(), "all": lambda: (file.row_groups, file.num_rows, repr(file))}
        for name, use in uses.items():
            try:
                answers[name] = use()
            except bs.BloomsealError:
                continue
            except Exception as error:
                raise AssertionError(f"{made.what}: {name} raised {error!r}") from error
    return answers
