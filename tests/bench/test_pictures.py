"""The README's pictures show the numbers that were measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.pictures import PAGE, index_scale, leak, look_up

PICTURES = PAGE.parent / "pictures"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]  # noqa: S314


def bars(svg: str) -> list[float]:
    found = [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("rect")]  # noqa: S314
    return [float(element.attrib["width"]) for element in found[1:]]


def test_the_look_up_is_drawn_from_the_page_of_benchmarks() -> None:
    page = PAGE.read_text(encoding="utf-8")
    drawn = look_up(page)
    assert (PICTURES / "look-up.svg").read_text(encoding="utf-8") == drawn
    names = texts(drawn)
    assert "Bloomseal, encrypted file" in names
    assert "pyarrow, encrypted file" in names
    section = page.partition("### Point look-up, present")[2].partition("\n### ")[0]
    for shown in names[2::2]:
        assert f"| {shown} |" in section


def test_bars_are_as_long_as_their_numbers() -> None:
    page = (
        "### Point look-up, present, x\n| Bloomseal | 500 µs | x |\n| pyarrow, encrypted | 2 ms | x |\n### Other\n"
        "| DuckDB, plaintext file | 9 s | x |\n"
    )
    ours, theirs = bars(look_up(page))
    assert theirs / ours == pytest.approx(4, rel=0.02)


def demo(rightly: int, wrongly: int) -> dict[str, Any]:
    return {
        "attack_clear_emails": {"candidates": 200, "in_the_table": 100, "rightly": 100},
        "attack_sealed": {"ciphertext_read_as_filter": {"rightly": rightly, "wrongly": wrongly}},
    }


def test_the_leak_shows_what_the_demonstration_found() -> None:
    assert "100 named" in texts(leak(demo(4, 5)))
    assert "0: no better than guessing" in texts(leak(demo(4, 5)))
    assert bars(leak(demo(50, 0)))[1] == pytest.approx(bars(leak(demo(50, 0)))[0] / 2, rel=0.02)
    kept = (PICTURES / "leak.svg").read_text(encoding="utf-8")
    assert any("100,000 named" in text for text in texts(kept))


def test_the_growth_of_an_index_is_drawn_from_its_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert (PICTURES / "index-scale.svg").read_text(encoding="utf-8") == index_scale(page)
    drawn = index_scale(
        "## How a sealed index grows\n| files | 10 | 100 |\n| a look-up of a value that is nowhere, eight runs | 1 ms | 1 s |\n"
        "| states of all files, by `stat` | 1 ms | 10 ms |\n| one value asked of eight runs | 10 ms | 10 ms |\n"
        "| one value asked of one run | 1 ms | 100 ms |\n"
    )
    assert texts(drawn)[1:5] == ["1 s", "1 ms", "10", "100 files"]
    ends = [
        [float(number) for number in element.attrib["points"].split()[-1].split(",")]
        for element in ElementTree.fromstring(drawn).iter()  # noqa: S314
        if element.tag.endswith("polyline")
    ]
    (_, most), (_, least), (_, flat), (_, middle) = ends
    assert least == flat
    assert least - middle == pytest.approx(middle - most, abs=2)


def test_the_pictures_are_small_and_load_nothing() -> None:
    for path in sorted(PICTURES.glob("*.svg")):
        text = path.read_text(encoding="utf-8")
        assert path.stat().st_size < 10_000
        assert "href" not in text
        assert "<script" not in text
    readme = (Path(PAGE).parents[1] / "README.md").read_text(encoding="utf-8")
    assert "docs/pictures/leak.svg" in readme
    assert "docs/pictures/look-up.svg" in readme
