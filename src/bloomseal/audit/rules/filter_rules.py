"""Rules about filters: that they authenticate, hold what they should, and tell no more than they may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ...core.columns import own_entry
from ...policy import TablePolicy
from ...sbbf import FilterSpec, bits_per_value
from ...storage.discovery.kinds import is_of_index
from ..facts.files.file import FileFacts, Seen
from .findings import Finding
from .judged import Line, found

if TYPE_CHECKING:
    from ..facts.policies import Policies

_USELESS: Final = 0.5
"""Without a policy, a false positive probability from which on a filter is overfull: it rules out less than half."""


def check_filters(line: Line) -> Iterator[Finding]:
    """The findings about the opened filters of alike chunks."""
    judged = [chunk for chunk in line.chunks if chunk.bloom is not None]
    for rule, message, wrong in (
        (
            "BS202",
            "the filter does not authenticate",
            [c for c in judged if c.bloom and c.bloom.authentic is False and c.bloom.error],
        ),
        ("BS208", "", [c for c in judged if c.bloom and c.bloom.error and c.bloom.authentic is not False]),
        ("BS205", "no bit is set, though the chunk has values", [c for c in judged if c.bloom and c.bloom.empty]),
    ):
        if wrong:
            error = wrong[0].bloom.error if wrong[0].bloom else None
            yield line.finding(rule, message or error or "", chunks=wrong)
    if wrong := [c for c in judged if c.bloom and c.bloom.denied]:
        denied, asked = (sum(getattr(c.bloom, name) or 0 for c in wrong) for name in ("denied", "values"))
        yield line.finding("BS210", f"it denies {denied} of the {asked} values that its chunks hold", chunks=wrong)
    spec = _spec(line.policy, line.column)
    full = [c for c in judged if c.bloom and _overfull(c.bloom.fpp, c.bloom.ndv, c.bloom.num_bytes, spec)]
    if full:
        worst = max(c.bloom.fpp or 0.0 for c in full if c.bloom)
        target = f"; the policy has {spec.fpp:g}" if spec else ""
        smallest = min(c.bloom.num_bytes or 0 for c in full if c.bloom)
        # Built as a policy has it that fixes the size, it would be as full again.
        mendable = spec is None or not _fixed(spec, smallest)
        yield line.finding("BS401", f"false positives at {worst:.2g}{target}", chunks=full, mendable=mendable)
    if (
        spec is not None
        and not is_of_index(line.file.path)
        and line.type.split()[0].upper() != "BOOLEAN"
        and line.chunks[0].filter == Seen.NONE
    ):
        yield line.finding("BS403", "the policy wants a filter here")


def check_sizes(files: Sequence[FileFacts], policies: Policies) -> Iterator[Finding]:
    """Columns whose filters are to be of one size, and are not."""
    for file in files:
        policy = policies.of(file.path)
        if policy is None:
            continue
        lengths: dict[str, dict[int, list[int]]] = {}
        for chunk in file.chunks:
            if chunk.protection and chunk.filter_length is not None:
                column = file.leaves[chunk.leaf][0]
                lengths.setdefault(column, {}).setdefault(chunk.filter_length, []).append(chunk.row_group)
        for column, sizes in lengths.items():
            spec = _spec(policy, column)
            if spec is None or not spec.hide_size:
                continue
            wanted = spec.build(np.zeros(0, np.uint64)).num_bytes
            # Header and framing take less than 256 bytes in every implementation.
            off = {size: groups for size, groups in sizes.items() if not wanted <= size < wanted + 256}
            if off:
                message = f"lengths {', '.join(map(str, sorted(sizes)))}, where {wanted} bytes of bitset are the policy's size"
                groups = tuple(sorted(group for found_in in off.values() for group in found_in))
                yield found("BS402", message, None, file.path, column, groups)


def _spec(policy: TablePolicy | None, column: str) -> FilterSpec | None:
    entry = own_entry(policy.columns, column) if policy is not None else None
    return entry.filter if entry is not None else None


def _fixed(spec: FilterSpec, num_bytes: int) -> bool:
    if spec.ndv is None and spec.num_bytes is None:
        return False
    return spec.build(np.zeros(0, np.uint64)).num_bytes <= num_bytes


def _overfull(fpp: float | None, ndv: int | None, num_bytes: int | None, spec: FilterSpec | None) -> bool:
    if fpp is None or ndv is None or num_bytes is None:
        return False
    allowed = spec.fpp if spec is not None else _USELESS
    if (spec is not None and fpp <= 2 * allowed) or fpp <= allowed:
        return False
    # A filter of few blocks scatters around its probability; more values than it is for is what makes it overfull.
    return ndv * bits_per_value(allowed) > num_bytes * 8
