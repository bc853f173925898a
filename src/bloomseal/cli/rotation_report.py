"""What a rotation is going to do, or has done, as tables or JSON."""

from __future__ import annotations

from collections import Counter

from ..rotation.outcome import RotationPlan, RotationReport
from .render import facts, print_json, remark, size, table
from .state import CommandState

__all__ = ["tell_plan", "tell_report"]


def tell_plan(planned: RotationPlan) -> None:
    """A dry run's answer."""
    _tell_of_nothing(len(planned.files))
    if CommandState.current().json:
        print_json(planned.to_dict())
        return
    table(
        ["file", "what", "why", "size", "to write", "to copy"],
        [
            (one.path, one.action, one.why, size(one.size), size(one.bytes_to_write), size(one.bytes_to_copy))
            for one in planned.files
        ],
    )
    facts(
        [
            ("files", len(planned.files)),
            ("to write", size(planned.bytes_to_write)),
            ("to copy, by the kernel", size(planned.bytes_to_copy) if planned.bytes_to_copy else None),
            ("KMS calls, at most", planned.kms_calls),
            ("time, roughly", f"{planned.seconds:.1f} s"),
            ("journal", planned.journal),
            ("dry run", "nothing was written"),
        ],
        title=planned.operation,
    )


def _tell_of_nothing(files: int) -> None:
    """A folder that was misspelt, and exists, is done at once."""
    if not files:
        remark("no data file was found there")


def tell_report(report: RotationReport) -> None:
    """What a run did."""
    _tell_of_nothing(len(report.files))
    if CommandState.current().json:
        print_json(report.to_dict())
        return
    if problems := report.problems:
        rows = [(one.path, str(one.status), one.why) for one in problems]
        rows += [(one.path, f"column {key['column']}", key["why"]) for one in problems for key in one.left]
        rows += [
            (one.path, f"key material {name}", "the file does not refer to it; left as it is")
            for one in problems
            for name in one.unreferenced
        ]
        table(["file", "status", "why"], rows)
    if unsure := Counter((one.path, each["column"], each["why"]) for one in report.files for each in one.unchecked):
        told = [(*place, number) for place, number in unsure.items()]
        table(["file", "column", "nothing tells whether its filter is right", "row groups"], told)
    if lost := Counter((one.path, each["column"], each["why"]) for one in report.files for each in one.dropped):
        told = [(*place, number) for place, number in lost.items()]
        table(["file", "column", "its filter was not taken over", "row groups"], told)
    if copies := Counter(one.old_copies for one in report.files if one.old_copies):
        table(["old files", "copies of them"], [(number, why) for why, number in copies.items()])
    facts(
        [
            *((str(status), number) for status, number in report.counts.items()),
            ("written", size(sum(one.bytes_written for one in report.files))),
            ("filters built in an older one's place", sum(one.filters_replaced for one in report.files) or None),
            ("filters in clear, not taken over", sum(one.filters_dropped for one in report.files) or None),
            ("time", f"{report.seconds:.1f} s"),
            ("journal", report.journal),
            ("resumed", "yes" if report.resumed else None),
        ],
        title=f"{report.operation}: {len(report.files)} files",
    )
