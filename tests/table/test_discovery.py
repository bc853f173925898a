"""One tree that is hard to list, and everybody who lists it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

import bloomseal as bs
from bloomseal.audit import inventory, may_destroy
from bloomseal.rotation import Rewrap, rotate
from bloomseal.rotation.files import find_files as to_rotate
from bloomseal.rotation.outcome import Status
from bloomseal.storage.discovery.files import list_files
from bloomseal.storage.discovery.kinds import FileKind, is_hidden, kind_of
from bloomseal.storage.discovery.tables import find_files

READERS = [
    "a.parquet",
    "b.parquet.v2",
    "_day=1/c.parquet",
    "d.pq",
    "Deep/er/E.PARQ",
    "day=2/_x=3/f.parquet",
    "folder.parquet/g.parquet",
]
OTHERS = ["000000_0", "h.bak", "notes/i"]
HIDDEN = [
    ".j.parquet",
    "_k.parquet",
    "_temporary/l.parquet",
    ".hive/m.parquet",
    "_metadata",
    "day=2/.n.parquet.1a.bloomseal-tmp",
]
NO_DATA = ["notes.txt", "_SUCCESS", "_KEY_MATERIAL_FOR_left.parquet.json", "x.parquetry"]


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    ring.create("footer")
    return ring


@pytest.fixture
def spec(ring: bs.Keyring) -> bs.DecryptionSpec:
    return bs.DecryptionSpec(bs.KeyTools(ring), partition_by=["_day", "day", "_x"])


@pytest.fixture
def tree(tmp_path: Path, ring: bs.Keyring) -> Path:
    root = tmp_path / "tree"
    for number, name in enumerate([*READERS, *OTHERS, *HIDDEN]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"id": [number], "name": [f"n{number}"]})
        bs.write_table(table, path, encryption=bs.EncryptionSpec("footer", keys=ring), bloom_filters={"name": True})
    for name in NO_DATA:
        (root / name).write_bytes(b"no Parquet")
    return root


def names(root: Path, paths: object) -> list[str]:
    return sorted(os.path.relpath(str(path), root) for path in paths)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.parquet", FileKind.DATA),
        ("a.PQ", FileKind.DATA),
        ("x=_y/a.parq", FileKind.DATA),
        ("_x=1/a.parquet.gz", FileKind.DATA),
        ("a.parquetry", FileKind.OTHER),
        ("parquet", FileKind.OTHER),
        ("_x/a.parquet", FileKind.HIDDEN),
        (".x=1/a.parquet", FileKind.HIDDEN),
        ("_common_metadata", FileKind.HIDDEN),
        (".a.parquet.12ab.bloomseal-tmp", FileKind.LEFTOVER),
        ("a.parquet.bloomseal-tmp", FileKind.DATA),
    ],
)
def test_names(name: str, kind: FileKind) -> None:
    assert kind_of(name) is kind
    assert is_hidden(name) is (kind in (FileKind.HIDDEN, FileKind.LEFTOVER))


def test_everybody_sees_what_a_reader_reads(tree: Path, spec: bs.DecryptionSpec) -> None:
    wanted = sorted(READERS)
    assert bs.read_table(tree, columns=["id"], decryption=spec)["id"].to_pylist() == [
        READERS.index(name) for name in wanted
    ]
    assert names(tree, (found.ref.path for found in find_files(tree).files)) == wanted
    visible = sorted([*READERS, *OTHERS])
    assert names(tree, (file.ref.path for file in to_rotate(tree) if file.outside is None)) == visible
    assert names(tree, inventory(tree)["file"].unique().to_pylist()) == visible
    assert may_destroy("any", "1", tree).files == len(visible) + len(HIDDEN)
    everything = find_files(tree, everything=True)
    assert sorted(found.relative for found in everything.others) == sorted(HIDDEN)
    assert {found.kind for found in everything.others} == {FileKind.HIDDEN, FileKind.LEFTOVER}
    assert [Path(ref.path).name for ref in everything.sidecars] == ["_KEY_MATERIAL_FOR_left.parquet.json"]
    assert not everything.problems


def test_a_rotation_leaves_nothing_that_a_reader_reads(tree: Path, ring: bs.Keyring, tmp_path: Path) -> None:
    ring.rotate("footer")
    report = rotate(tree, Rewrap(bs.DecryptionSpec(bs.KeyTools(ring))), journal=tmp_path / "j")
    assert report.ok, report.problems
    visible = sorted(str(tree / name) for name in [*READERS, *OTHERS])
    assert sorted(file.path for file in report.files if file.status is not Status.DEAD) == visible
    told = {file.path for file in report.files} - {*visible}
    assert told == {str(tree / name) for name in HIDDEN if kind_of(name) is FileKind.HIDDEN}
    assert may_destroy("footer", "1", visible, keys=ring, after=0).answer == "yes"
    needed = may_destroy("footer", "1", tree, keys=ring, after=0).needed_by
    assert sorted(needed) == sorted(str(tree / name) for name in HIDDEN)


def test_another_file_system_gives_the_same_files(tree: Path, spec: bs.DecryptionSpec) -> None:
    remote = pafs.SubTreeFileSystem(str(tree.parent), pafs.LocalFileSystem())
    for everything in (False, True):
        here, there = (
            list_files(place, filesystem, everything=everything)
            for place, filesystem in ((str(tree), None), ("tree", remote))
        )
        assert [(one.relative, one.kind) for one in here.files] == [(one.relative, one.kind) for one in there.files]


def test_links(tree: Path, spec: bs.DecryptionSpec, tmp_path: Path) -> None:
    (tree / "+a.parquet").symlink_to("a.parquet")
    (tree / "+again").symlink_to(tree)
    (tree / "day=9").symlink_to("_day=1")
    before = names(tree, (found.ref.path for found in find_files(tree).files))
    assert before == sorted(READERS)
    # Out of a hidden folder a link makes data of what nobody else names.
    (tree / "z.parquet").symlink_to("_temporary/l.parquet")
    for everything in (False, True):
        found = find_files(tree, everything=everything).files
        assert "z.parquet" in [one.relative for one in found if one.kind is FileKind.DATA]
    (tree / "z.parquet").unlink()
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(tree / "a.parquet", outside / "secret.parquet")
    for name, target in (("+out.parquet", "secret.parquet"), ("+folder", ".")):
        (tree / name).symlink_to(outside / target)
        with pytest.raises(bs.UsageError, match="leads out of the table"):
            bs.read_table(tree, decryption=spec)
        report = rotate(tree, Rewrap(spec), journal=tmp_path / f"journal{name}")
        assert not report.ok
        assert [Path(one.path).name for one in report.problems] == [name]
        assert len(find_files(tree, follow_links=True).files) == len(READERS) + 1
        assert len(find_files([tree, outside]).files) == len(READERS) + 1  # its target was named, too
        (tree / name).unlink()


def test_links_between_folders_end(tmp_path: Path) -> None:
    for one in range(30):
        folder = tmp_path / f"f{one}"
        folder.mkdir()
        (folder / "a.parquet").touch()
        for other in range(30):
            (folder / f"to{other}").symlink_to(tmp_path / f"f{other}")
    assert len(find_files(tmp_path).files) == 30


def test_what_cannot_be_seen_is_a_problem(tree: Path, spec: bs.DecryptionSpec, tmp_path: Path) -> None:
    (tree / "gone.parquet").symlink_to("nowhere")
    (tree / "note").symlink_to("nowhere")  # promises nothing
    with pytest.raises(bs.UsageError, match=r"leads nowhere.*gone\.parquet"):
        bs.read_table(tree, decryption=spec)
    assert [file.status.value for file in rotate(tree, Rewrap(spec), journal=tmp_path / "j").problems] == ["failed"]
    assert any("gone.parquet" in doubt for doubt in may_destroy("any", "1", tree).doubts)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_a_problem(tree: Path, spec: bs.DecryptionSpec) -> None:
    (tree / "Deep").chmod(0)
    with pytest.raises(bs.UsageError, match="can't list the folder"):
        bs.read_table(tree, decryption=spec)
    assert find_files(tree, everything=True).problems
    (tree / "Deep").chmod(0o700)


def test_an_empty_file_is_not_passed_over(tree: Path, spec: bs.DecryptionSpec) -> None:
    (tree / "empty.parquet").touch()
    with pytest.raises(bs.FormatError, match=r"empty\.parquet"):
        bs.read_table(tree, decryption=spec)
    assert not rotate(tree, Rewrap(spec), journal=tree.parent / "j").ok


def test_patterns(tree: Path, spec: bs.DecryptionSpec) -> None:
    def matched(pattern: str) -> list[str]:
        return names(tree, (found.ref.path for found in find_files(f"{tree}/{pattern}").files))

    assert matched("*.parquet") == ["a.parquet", "folder.parquet/g.parquet"]
    assert matched("**/*.parquet") == sorted(name for name in READERS if name.endswith(".parquet"))
    assert matched("*day=*") == ["_day=1/c.parquet", "day=2/_x=3/f.parquet"]
    assert matched("[ab].*") == ["a.parquet", "b.parquet.v2"]
    with pytest.raises(bs.UsageError, match="nothing matches"):
        matched("*.bak")
    (tree / "q*.parquet").write_bytes((tree / "a.parquet").read_bytes())
    assert matched("q*.parquet") == ["q*.parquet"]


def test_several_places_hold_each_file_once(tree: Path, spec: bs.DecryptionSpec) -> None:
    files = find_files([tree / "d.pq", tree, tree / "a.parquet"]).files
    assert files[0].ref.path == str(tree / "d.pq")
    assert len(files) == len(READERS)
