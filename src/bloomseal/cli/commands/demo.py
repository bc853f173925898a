"""``bloomseal demo``: the main job on a million people, and what a thief gets out of it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from ...core.errors import UsageError
from ...core.text import counted
from ..command import PATH, Command, CommandState
from ..render import print_json, remark, size, table

_ROWS: Final = 1_000_000
_ROW_GROUPS: Final = 10
_BAR: Final = 40


@click.command(cls=Command)
@click.option("--rows", type=click.IntRange(min=1000), default=_ROWS, show_default=True)
@click.option("--row-groups", type=click.IntRange(min=1, max=1000), default=_ROW_GROUPS, show_default=True)
@click.option(
    "--seed", type=click.IntRange(min=0, max=1_000_000), default=1, show_default=True, help="Of the made-up people."
)
@click.option(
    "--output",
    "directory",
    type=PATH,
    metavar="FOLDER",
    help="Put the files here, and leave them (default: a temporary folder).",
)
@click.option("--keep", is_flag=True, help="Leave the files in the temporary folder.")
@click.option(
    "--spark/--no-spark", default=True, help="Look them up through Spark too, if it is installed (default: yes)."
)
def demo(rows: int, row_groups: int, seed: int, directory: str | None, keep: bool, spark: bool) -> None:
    """Write made-up people with sealed filters, look some up, compare with pyarrow and with Spark, attack the filters,
    and draw how a sealed index keeps look-ups quick while the table grows.

    Every number is measured in this run; keys are made for it. Spark's part needs the extras spark and jvm, or a Java.

    \b
    Example:
      bloomseal demo --rows 100000 --no-spark --output demo
    """
    from ...demo.spark_trial import why_not
    from ...demo.trial import Trial

    reason = why_not() if spark else "--no-spark"
    with _folder(directory, keep) as folder:
        trial = Trial(folder, rows, -(-rows // row_groups), seed, lambda text: remark(f"{text} ..."))
        results = trial.run()
        if reason is None:
            results["spark"] = trial.spark()
        elif spark:
            results["spark_left_out"] = reason
        if directory or keep:
            results["directory"] = str(folder)
    if CommandState.current().json:
        print_json(results)
    else:
        _show(results)


@contextlib.contextmanager
def _folder(directory: str | None, keep: bool) -> Iterator[Path]:
    if directory is None and not keep:
        with tempfile.TemporaryDirectory(prefix="bloomseal-demo-") as name:
            yield Path(name)
        return
    try:
        folder = Path(directory) if directory is not None else Path(tempfile.mkdtemp(prefix="bloomseal-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder can't be used: {error.strerror}", file=directory) from None
    yield folder


def _show(results: dict[str, Any]) -> None:
    write = results["write"]
    _show_lookups(results, write)
    _show_attack(results)
    _show_index(results["index"])
    if "spark" in results:
        _show_spark(results["spark"])
    elif "spark_left_out" in results:
        remark(f"without Spark: {results['spark_left_out']}")
    if "directory" in results:
        remark(f"the files are in {results['directory']}")


def _show_lookups(results: dict[str, Any], write: dict[str, Any]) -> None:
    table(
        ["written", "rows", "row groups", "columns", "filters", "file", "seconds"],
        [
            (what, write["rows"], write["row_groups"], write["columns"], f"{write['filters']}{more}",
             size(write[f"{kind}_bytes"]), write[f"{kind}_seconds"])
            for what, kind, more in (("sealed", "sealed", f", {size(write['filter_bytes'])}"),
                                     ("plaintext, for the attacker", "plaintext", ""))
        ],
        title="One table of personal data, filters on ssn and email",
    )  # fmt: skip
    table(
        ["looked up by ssn", "rows found", "row groups to read", "bloomseal probe", "bloomseal read", "pyarrow read", "faster", "same rows"],
        [
            (f"{one['values']} {name} people", one["rows_found"], f"{one['row_groups_to_read']:.1f} of {write['row_groups']}",
             *(_ms(one[f"{how}_seconds"]) for how in ("probe", "read", "pyarrow")), f"{one['times_faster']:.1f}×", one["same_rows_as_pyarrow"])
            for name in ("present", "absent") for one in [results[f"look_up_{name}"]]
        ],
        title="Lookups in the encrypted file, opened afresh each time (medians)",
    )  # fmt: skip


def _show_attack(results: dict[str, Any]) -> None:
    emails, numbers, sealed = results["attack_clear_emails"], results["attack_clear_ssn"], results["attack_sealed"]
    told = (
        ("filter in clear, a list of addresses", emails),
        (f"filter in clear, all numbers {numbers['area']}-xx-xxxx", numbers),
        ("sealed filter, its bytes taken for a filter", sealed["ciphertext_read_as_filter"]),
    )
    names = ("candidates", "in_the_table", "confirmed", "rightly", "wrongly")
    table(
        ["a thief asks", "candidates", "really in the table", "named", "rightly", "wrongly", "seconds"],
        [(what, *(one[name] for name in names), one.get("seconds")) for what, one in told],
        title="The same filters, in clear and sealed, without any key",
    )
    verify = results["verify"]
    table(
        ["sealed file", ""],
        [
            ("opened without keys", sealed["opened_without_keys"]),
            ("opened with a wrong key", sealed["opened_with_a_wrong_key"]),
            ("footer, for everybody", sealed["seen_without_keys"]),
            ("filter headers found in its bytes", f"{sealed['filter_headers_found_in_sealed_file']}"
             f" (in the plaintext file: {sealed['filter_headers_found_in_clear_file']})"),
            ("modules opened and authenticated with the keys", f"{verify['modules']:,} in {verify['seconds']:.2f} s, "
             f"{verify['failures']} failures"),
        ],
    )  # fmt: skip


def _show_index(told: list[dict[str, Any]]) -> None:
    """A picture of bars, the longest as wide as `_BAR`."""
    most = max(one["without"] for one in told)
    names = (("with_index", "sealed index"), ("without", "filters only"))
    table(
        ["one person looked up in", "", "milliseconds", ""],
        [
            (f"{counted(one['files'], 'file')}" if name == "with_index" else "", how, _ms(one[name]),
             "█" * max(round(_BAR * one[name] / most), 1))
            for one in told for name, how in names
        ],
        title="A table of more and more files, the person in none of them",
    )  # fmt: skip


def _show_spark(spark: dict[str, Any]) -> None:
    write, source = spark["write"], spark["data_source"]
    slow = spark["spark_without_filters"]
    table(
        ["looked up in Spark by ssn (medians)", "present", "absent", "faster, present", "faster, absent"],
        [
            (name, _ms(one["present_seconds"]), _ms(one["absent_seconds"]),
             f"{slow['present_seconds'] / one['present_seconds']:.1f}×", f"{slow['absent_seconds'] / one['absent_seconds']:.1f}×")
            for name, one in (("encrypted, filters off", slow), ("through the key bridge", spark["bridge"]),
                              ('format("bloomseal")', source))
        ],
        title=f"{write['rows']:,} people in {write['files']} files, written by Spark in {write['seconds']:.1f} s with "
        f"{write['filters']} sealed filters; of {source['row_groups']} row groups the filters rule out {source['pruned_by_filter']}",
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
