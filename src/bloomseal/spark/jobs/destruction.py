"""May a master key version be destroyed, over a table too big for one machine: files are looked at on the executors."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from ...audit.destruction.answer import Destruction
from ...audit.destruction.examine import Examined, Examiner, Work
from ...audit.destruction.look import Examination, asking
from ...audit.destruction.question import DestructionQuestion
from ...audit.facts.auditor import Auditor, ToldKey
from ...audit.facts.files.file import FilterCheck
from ...audit.facts.places import Places
from ..listing import open_filesystem, qualified, split_uri
from ..opening import table_of
from .common import JobOptions, TableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Sent = tuple[str | None, Work, ToldKey | None]
"""The file system of a file, what is to be looked at, and its key."""


def may_destroy(
    spark: SparkSession,
    master_key: str,
    version: str | None,
    path: str | os.PathLike[str],
    *,
    also: Sequence[str | os.PathLike[str]] = (),
    after: float | None = None,
    **options: Unpack[JobOptions],
) -> Destruction:
    """`bloomseal.audit.may_destroy` of a table: the same answer, the files looked at on the executors, which ask the
    KMS by themselves. Driver and executors need the keys of all files.

    Args:
        master_key, version, after: as there.
        path: a folder of files, or a Delta table.
        also: copies elsewhere, to be looked at too.
        options: policy and table, where the keys and AAD prefixes are from; files_per_task: see `TableJob`.

    Raises:
        UsageError: a key or version that the KMS does not know; no policy, or one whose KMS is an object.
        MissingDependencyError: a Delta table without its library.
    """
    job = TableJob(spark, path, **options)
    given = [path, *also]
    placed = [split_uri(qualified(spark, one)) for one in given]
    systems = {base: open_filesystem(base) for base, _ in placed}
    base_of = {id(system): base for base, system in systems.items() if system is not None}
    auditors = [Auditor(job.policy.keys, job.policy, filesystem=systems[base]) for base, _ in placed]

    def find() -> Places:
        places = Places()
        for auditor, (_, inside) in zip(auditors, placed, strict=True):
            places.add(auditor.find(inside, history=True))
        return places

    def sent(work: Work) -> _Sent:
        told = next(filter(None, (auditor.told(work.ref.path) for auditor in auditors)), None)
        return base_of.get(id(work.ref.filesystem)), replace(work, ref=replace(work.ref, filesystem=None)), told

    def examine(question: DestructionQuestion, works: list[Work]) -> list[Examined]:
        task = functools.partial(_examined, pickle.dumps(job.policy), question)
        with job.described(f"may {master_key} be destroyed, by"):
            return job.collect([*map(sent, works)], task)

    ask = functools.partial(asking(master_key, version, after), job.policy.keys.with_pins(None))
    return Examination(ask, find, examine).answer(given)


def _examined(policy: bytes, question: DestructionQuestion, works: Iterable[_Sent]) -> Iterator[Examined]:
    table = table_of(policy)
    auditor = Auditor(table.keys, table)
    examiner = Examiner(question, auditor.scanner(FilterCheck.NONE, witness=True))
    for base, work, told in works:
        auditor.take(work.ref.path, told)
        yield examiner.examine(replace(work, ref=replace(work.ref, filesystem=open_filesystem(base))))
