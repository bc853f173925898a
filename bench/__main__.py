"""`python -m bench`: run the suite, print it, and leave JSON, a Markdown page and plots."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from . import rows
from .data import SIZES
from .jvm import LEAVE_OUT
from .report import Report, environment, text_of
from .timing import Comparison, measure
from .workspace import ROWS, Workspace

_PROJECT = Path(__file__).parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 unless something of ours failed. Missed goals don't fail a run."""
    assert rows
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=_Formatter)
    parser.epilog = "rows:\n" + "\n".join(f"  {one.name:<10} {one.about}" for one in ROWS.values())
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="medium",
        help="small takes under a minute, without JVMs",
    )
    parser.add_argument(
        "--jvm", action=argparse.BooleanOptionalAction, help="start JVMs for Spark and parquet-java; not at size small"
    )
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help="only this row; may be repeated")
    parser.add_argument(
        "--output", type=Path, default=_PROJECT / "bench" / "out", help="where results.json and results.md go"
    )
    given = parser.parse_args(arguments)
    if given.jvm is False or (given.jvm is None and given.size == "small"):
        os.environ[LEAVE_OUT] = "1"
    # Arrow's pools start as many threads as there are cores; on one core they would only get in each other's way.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    report = Report(given.size, _command(given), environment())
    failed = False
    with tempfile.TemporaryDirectory(prefix="bloomseal-bench-") as folder:
        work = Workspace(SIZES[given.size], Path(folder))
        for name in given.only or ROWS:
            started = time.monotonic()
            try:
                for result in ROWS[name].build(work):
                    if isinstance(result, Comparison):
                        outcomes, verdicts = measure(result, judged=work.size.judged)
                        report.comparisons.append((name, result, outcomes, verdicts))
                        print(text_of(result, outcomes, verdicts), flush=True)
                    else:
                        report.curves.append((name, result))
                        print(f"{result.title}\n  {result.series}", flush=True)
            except Exception as error:  # one broken row must not cost the others
                failed = True
                print(f"{name}: FAILED, {type(error).__name__}: {error}", file=sys.stderr)
            print(f"[{name}: {time.monotonic() - started:.0f} s]\n", flush=True)
            report.save(given.output)  # a run that is broken off keeps what it has
    print(f"{given.output / 'results.md'}")
    return 1 if failed else 0


class _Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


def _command(given: argparse.Namespace) -> str:
    options = [f"--size {given.size}", *(f"--only {name}" for name in given.only or ())]
    options += [] if given.jvm is None else ["--jvm" if given.jvm else "--no-jvm"]
    return f"make bench BENCH={shlex.quote(' '.join(options))}"


if __name__ == "__main__":
    sys.exit(main())
