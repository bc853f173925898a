"""An open file lies in its table or it does not, however the table's folder is spelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from bloomseal import UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.storage.discovery.files import real_root, refuse_outside, refuse_outside_of
from bloomseal.storage.places import open_source


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("table/part/inside", "table-2/beside", "elsewhere/outside"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(b"PAR1")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    (tmp_path / "table" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "table" / "in").symlink_to(tmp_path / "table" / "part")
    return tmp_path


@pytest.mark.parametrize("folder", ["table", "table/", "link", "link/", "elsewhere/../table", "table/part/.."])
@pytest.mark.parametrize(
    ("name", "inside"),
    [("part/inside", True), ("in/inside", True), ("out/outside", False), ("../table-2/beside", False)],
)
def test_by_its_name_as_by_its_real_path(place: Path, folder: str, name: str, inside: bool) -> None:
    root = f"{place}/{folder}"
    with open_source(FileRef(f"{place}/table/{name}")) as source:
        for refuse in (
            lambda: refuse_outside(source, (real_root(root),)),
            lambda: refuse_outside_of(source, root),
        ):
            if inside:
                refuse()
            else:
                with pytest.raises(UsageError, match="outside the table now"):
                    refuse()


def test_a_folder_that_became_a_link_has_another_real_path(place: Path) -> None:
    with open_source(FileRef(f"{place}/table/part/inside")) as source:
        refuse_outside_of(source, f"{place}/table")
        (place / "table").rename(place / "moved")
        (place / "table").symlink_to(place / "elsewhere")
        with pytest.raises(UsageError, match="outside the table now"):
            refuse_outside_of(source, f"{place}/table")
    with open_source(FileRef(f"{place}/moved/part/inside")) as source:
        refuse_outside_of(source, f"{place}/moved")
