"""The benchmark's own parts: its data, its arithmetic, its page; and one run of the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.report import Report, text_of
from bench.timing import CantError, Ceiling, Comparison, Contender, Curve, Goal, Timed, measure

from bench import data

PROJECT = Path(__file__).parents[2]


def timed(*values: float, answer: object = None) -> object:
    """A job whose runs take these times, the first of them to warm up."""
    rest = iter(values)
    return lambda: Timed(next(rest), answer)


def comparison(goals: list[Goal | Ceiling], repetitions: int = 3) -> Comparison:
    return Comparison(
        "a job",
        [
            Contender("ours", timed(99, 1, 2, 3), ours=True, work=10),
            Contender("peer", timed(99, 4, 4, 6)),
        ],
        goals,
        work_unit="values",
        repetitions=repetitions,
    )


class TestData:
    def test_the_same_rows_are_made_every_time(self):
        assert data.people(1_000, 50).equals(data.people(1_000, 50))

    def test_values_follow_from_the_row_number(self):
        table = data.people(123_456, 3)
        assert table["ssn"].to_pylist() == [data.ssn(123_456 + i) for i in range(3)]
        assert table["email"].to_pylist() == [data.email(123_456 + i) for i in range(3)]

    def test_all_values_of_a_column_differ(self):
        table = data.people(0, 100_000)
        assert len(pc.unique(table["ssn"])) == len(pc.unique(table["email"])) == 100_000

    def test_absent_values_are_in_no_table(self):
        absent = set(data.absent_ssns(10_000))
        assert len(absent) == 10_000
        assert not absent & set(data.people(0, 200_000)["ssn"].to_pylist())

    def test_strings_have_the_lengths_that_kernels_are_told(self):
        array = data.email_array(5, 7)
        assert data.keys_of_bytes(array.slice(2, 3)) == "".join(array.to_pylist()[2:5]).encode()
        assert set(pc.binary_length(array).to_pylist()) == {29}
        assert set(pc.binary_length(data.ssn_array(5, 7)).to_pylist()) == {11}

    def test_batches_are_the_table(self):
        pieces = list(data.batches(10, 25, 10))
        assert [piece.num_rows for piece in pieces] == [10, 10, 5]
        assert [value for piece in pieces for value in piece["ssn"].to_pylist()] == data.people(10, 25)[
            "ssn"
        ].to_pylist()


class TestMeasure:
    def test_the_warm_up_does_not_count(self):
        outcomes, _ = measure(comparison([]))
        assert [outcome.values for outcome in outcomes] == [[1, 2, 3], [4, 4, 6]]
        assert outcomes[0].median == 2
        assert outcomes[0].rate == 5

    def test_ratios_are_of_neighbouring_repetitions(self):
        _, verdicts = measure(
            comparison(
                [
                    Goal("ours", "peer", 0.5, True, "at most half the time"),
                    Goal("ours", "peer", 2.1, False, "2.1 times faster"),
                    Ceiling("ours", 1.9, "under 1.9 s"),
                ]
            )
        )
        assert [(v.ratio, v.spread, v.met) for v in verdicts] == [
            (0.5, (0.25, 0.5), True),
            (2, (2, 4), False),
            (2, (1, 3), False),
        ]

    def test_small_data_are_not_judged(self):
        _, verdicts = measure(comparison([Goal("ours", "peer", 0.1, True, "never")]), judged=False)
        assert (verdicts[0].ratio, verdicts[0].met) == (0.5, None)

    def test_a_peer_that_cannot_is_shown_with_its_message(self):
        def refuse() -> None:
            raise CantError("no encryption here")

        job = comparison([Goal("ours", "peer", 1, True, "as fast")])
        job.contenders[1].run = refuse
        outcomes, verdicts = measure(job)
        assert outcomes[1].cant == "no encryption here"
        assert verdicts[0].ratio is None
        text = text_of(job, outcomes, verdicts)
        assert "can't" in text
        assert "no encryption here" in text

    def test_a_failure_of_ours_is_not_hidden(self):
        job = comparison([])
        job.contenders[0].run = lambda: 1 / 0
        with pytest.raises(ZeroDivisionError):
            measure(job)

    def test_contenders_must_agree(self):
        job = Comparison(
            "a job", [Contender("peer", timed(1, 1, answer=3)), Contender("other", timed(1, 1, answer=2))], answer=3
        )
        with pytest.raises(AssertionError, match="other: 2 instead of 3"):
            measure(job)


def test_growth_is_measured_over_the_upper_half():
    square = [(0.0, 5.0), (1.0, 1.0), (10.0, 100.0), (100.0, 10_000.0)]
    assert Curve("a cost", "files", {"ours": square}).exponents["ours"] == pytest.approx(2)


def test_the_page_shows_goals_values_and_how_to_repeat_it():
    report = Report("medium", "make bench", {"pyarrow": "1", "load | now": "0.1"})
    job = comparison([Goal("ours", "peer", 0.1, True, "ten times")])
    report.comparisons.append(("job", job, *measure(job)))
    page = report.to_markdown({})
    assert "make bench" in page
    assert "| a job | ten times | 0.5 (0.25 … 0.5) | – | **no** |" in page
    assert "| ours | 2 s | 1 s … 3 s | 5e-06 M values/s |" in page
    assert r"load \| now" in page


def test_the_command_measures_and_writes_its_results(tmp_path: Path):
    command = [sys.executable, "-m", "bench", "--size", "small", "--only", "footer", "--only", "verify"]
    done = subprocess.run([*command, "--output", str(tmp_path / "out")], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["row"] for one in results["comparisons"]] == ["footer", "verify", "verify"]
    for one in results["comparisons"]:
        for contender in one["contenders"]:
            assert len(contender["values"]) == data.SIZES["small"].repetitions, contender
            assert min(contender["values"]) > 0
            assert len(contender["cpu"]) == data.SIZES["small"].repetitions
    assert "Bloomseal probe" in (tmp_path / "out" / "results.md").read_text()


def test_a_missed_goal_says_where_the_time_goes():
    def slow():
        return sum(1 for _ in range(20_000)) and sorted(range(2_000))

    job = Comparison(
        "a job",
        [Contender("ours", slow, ours=True), Contender("peer", lambda: sorted(range(2_000)))],
        [Goal("ours", "peer", 1e-9, True, "in no time")],
        repetitions=1,
    )
    outcomes, verdicts = measure(job)
    assert [len(outcome.profile) > 0 for outcome in outcomes] == [True, False]
    assert {name for name, _ in outcomes[0].profile} & {"bench/test_bench.<genexpr>", "sum"}
    assert 0.5 < sum(share for _, share in outcomes[0].profile) <= 1
    assert "Where the time of *ours* goes: " in text_of(job, outcomes, verdicts)
