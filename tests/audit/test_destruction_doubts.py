"""No *yes* where something is left to doubt: each of these tables was once called free of a key that it needs, or may
need.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from bloomseal import EncryptionSpec, Keyring, KeyTools, seal_file
from bloomseal.audit.destruction.answer import Destruction
from bloomseal.core.errors import UsageError
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.kms_protocols import MasterKeyFacts
from support.lab import Lab, glued, people


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A table ``t`` of one file under version 2 of both master keys: nothing there needs ``pii:1``."""
    lab = Lab(tmp_path)
    shutil.copy(tmp_path / "keys.json", tmp_path / "before.json")
    lab.keyring.rotate("pii")
    lab.keyring.rotate("footer")
    lab.write("t/a.parquet")
    return lab


def ask(lab: Lab, version: str | None = "1", paths: Any = None, key: str = "pii", **options: Any) -> Destruction:
    """With all keys, and no writer that could still hold any."""
    return lab.ask(key, version, lab.folder / "t" if paths is None else paths, **options)


def old(lab: Lab, name: str, **options: Any) -> Path:
    """A file under version 1 of both keys."""
    before = Lab.__new__(Lab)
    before.folder, before.keyring = lab.folder, Keyring(lab.folder / "before.json")
    more = options.pop("encryption", {})
    if more.pop("external", False):
        more["keys"] = KeyTools(before.keyring, internal=False)
    return before.write(name, encryption=more, **options)


def test_the_table_itself_is_free_of_it(lab: Lab) -> None:
    answer = ask(lab)
    assert (answer.answer, answer.reasons) == ("yes", ())
    assert bool(answer)
    no = ask(lab, "2", after=0)
    assert (no.answer, bool(no)) == ("no", False)


@pytest.mark.parametrize("version", ["v1", "01", " 1", "1 ", "77", "", "+1", "１", "0"])
def test_a_version_that_the_kms_does_not_know_is_refused(lab: Lab, version: str) -> None:
    with pytest.raises(UsageError, match="version") as refused:
        ask(lab, version)
    assert "1, 2" in str(refused.value)


def test_a_key_that_the_kms_does_not_know_is_refused(lab: Lab) -> None:
    with pytest.raises(UsageError, match="piii") as refused:
        ask(lab, key="piii")
    assert "pii" in str(refused.value.hint)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_comes_while_the_others_are_looked_at(lab: Lab, replaced: bool) -> None:
    aside = old(lab, "aside/late.parquet")
    lab.write("t/b.parquet")
    target = lab.folder / "t" / ("a.parquet" if replaced else "late.parquet")

    def arrive(done: int, _: int) -> None:
        if done == 2 and aside.exists():
            aside.rename(target)

    answer = ask(lab, progress=arrive)
    assert not aside.exists()
    assert (answer.answer, answer.needed_by) == ("no", [str(target)])


def test_files_that_never_stop_changing(lab: Lab) -> None:
    path = lab.folder / "t" / "a.parquet"

    def touch(done: int, _: int) -> None:
        copy = path.with_name("copy")
        shutil.copyfile(path, copy)
        copy.rename(path)

    assert ask(lab, progress=touch).answer == "unknown"


def test_a_delta_version_without_commit_info(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    outside = old(lab, "elsewhere/old.parquet")
    folder = lab.folder / "delta"
    deltalake.write_deltalake(str(folder), people())
    assert ask(lab, paths=folder).answer == "yes"
    log = folder / "_delta_log"
    add = {"path": f"file://{outside}", "partitionValues": {}, "size": outside.stat().st_size, "modificationTime": 1}
    (log / f"{1:020d}.json").write_text(json.dumps({"add": {**add, "dataChange": True}}) + "\n")
    removed = {"path": f"file://{outside}", "deletionTimestamp": 1, "dataChange": True}
    (log / f"{2:020d}.json").write_text(json.dumps({"remove": removed}) + "\n")
    answer = ask(lab, paths=folder)
    assert (answer.answer, answer.needed_by) == ("no", [str(outside)])
    assert answer.snapshots == 3


def test_a_delta_log_with_a_hole(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "delta"
    for _ in range(4):
        deltalake.write_deltalake(str(folder), people(), mode="append")
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    assert ask(lab, paths=folder).answer == "yes"
    log = folder / "_delta_log" / f"{1:020d}.json"
    log.rename(lab.folder / "gone")
    assert ask(lab, paths=folder).answer == "unknown"
    log.write_text("{")
    assert ask(lab, paths=folder).answer == "unknown"


def _iceberg(lab: Lab, *tables: Any) -> tuple[Any, Path]:
    memory = pytest.importorskip("pyiceberg.catalog.memory")
    catalog = memory.InMemoryCatalog("test", warehouse=str(lab.folder / "ice"))
    catalog.create_namespace("n")
    data = people().select(["id", "ssn"])
    table = catalog.create_table("n.t", schema=data.schema)
    table.append(data)
    return table, Path(table.metadata_location.removeprefix("file://"))


def test_an_iceberg_table_by_its_folder_or_by_stale_metadata(lab: Lab) -> None:
    table, stale = _iceberg(lab)
    folder = stale.parent.parent
    assert ask(lab, paths=folder).answer == "yes"
    table.append(people().select(["id", "ssn"]))
    newest = Path(table.metadata_location.removeprefix("file://"))
    live = max((folder / "data").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    shutil.copyfile(old(lab, "aside/old.parquet"), live)
    for given in (folder, newest, folder.parent):
        assert ask(lab, paths=given).needed_by == [str(live)]
    with pytest.raises(UsageError, match="newer metadata"):
        ask(lab, paths=stale)
    # Under a name of its own nobody can tell whether it is the table's latest word.
    (lab.folder / "copies").mkdir()
    copy = shutil.copyfile(newest, lab.folder / "copies" / "copy.metadata.json")
    shutil.copyfile(lab.folder / "t" / "a.parquet", live)
    assert ask(lab, paths=folder).answer == "yes"
    assert ask(lab, paths=copy).answer == "unknown"


def test_a_sidecar_that_claims_another_version(lab: Lab) -> None:
    external = KeyTools(lab.keyring, internal=False)
    lab.write("t/a.parquet", encryption={"keys": external})
    assert ask(lab).answer == "yes"
    path = old(lab, "aside/b.parquet", encryption={"external": True, "plaintext_footer": True})
    sidecar = path.with_name("_KEY_MATERIAL_FOR_b.parquet.json")
    assert '\\\\\\"1\\\\\\"' in sidecar.read_text()
    for one in (path, sidecar):
        one.rename(lab.folder / "t" / one.name)
    sidecar = lab.folder / "t" / sidecar.name
    sidecar.write_text(sidecar.read_text().replace('\\\\\\"1\\\\\\"', '\\\\\\"2\\\\\\"'))
    answer = ask(lab)
    assert answer.answer == "no"
    assert answer.needed_by == [str(lab.folder / "t" / "b.parquet")]


def test_a_key_in_the_file_that_claims_another_version(lab: Lab) -> None:
    path = old(lab, "t/b.parquet", encryption={"plaintext_footer": True})
    data = path.read_bytes()
    assert data.count(b'\\"1\\"')
    path.write_bytes(data.replace(b'\\"1\\"', b'\\"2\\"'))
    assert ask(lab).answer != "yes"
    assert ask(lab, key="footer").answer == "no"


def test_an_orphaned_sidecar(lab: Lab) -> None:
    old(lab, "t/b.parquet", encryption={"external": True}).unlink()
    answer = ask(lab)
    assert answer.answer == "no"
    assert "_KEY_MATERIAL_FOR_b.parquet.json" in answer.reasons[0].place
    (lab.folder / "t" / "_KEY_MATERIAL_FOR_b.parquet.json").write_text("{")
    assert ask(lab).answer == "unknown"


def test_an_entry_of_a_sidecar_that_its_file_does_not_name(lab: Lab) -> None:
    older = old(lab, "aside/a.parquet", encryption={"external": True})
    more = json.loads(older.with_name("_KEY_MATERIAL_FOR_a.parquet.json").read_text())
    lab.write("t/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    assert ask(lab).answer == "yes"
    sidecar = lab.folder / "t" / "_KEY_MATERIAL_FOR_a.parquet.json"
    sidecar.write_text(
        json.dumps({**{f"old-{name}": text for name, text in more.items()}, **json.loads(sidecar.read_text())})
    )
    assert ask(lab).answer == "no"


@pytest.mark.parametrize("name", ["volume", "b.parquet", ".hidden", "_x/archive"])
def test_a_link_that_leads_nowhere(lab: Lab, name: str) -> None:
    link = lab.folder / "t" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(lab.folder / "not mounted")
    answer = ask(lab)
    assert (answer.answer, len(answer.reasons)) == ("unknown", 1)
    assert answer.reasons[0].place == str(link)


@pytest.mark.parametrize(
    "name",
    ["b.json", ".b.parquet.crc", "b.crc", "_KEY_MATERIAL_FOR_b.json", "_delta_log/b.parquet", "metadata/b.avro", "_SUCCESS"],
)  # fmt: skip
def test_a_file_under_a_name_that_says_otherwise(lab: Lab, name: str) -> None:
    old(lab, f"t/{name}")
    try:
        answer = ask(lab).answer
    except UsageError:
        answer = "refused"
    assert answer == ("refused" if "_delta_log" in name else "no")


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (lambda data: data + b"\n", "something stands behind it"),
        (lambda data: data[:-100], "unfinished"),
        (gzip.compress, "gzip"),
        (lambda data: _zip(data), "zip"),
        (lambda data: _tar(data), "tar"),
        (lambda data: b"\x28\xb5\x2f\xfd" + data[:-4], "zstd"),
    ],
)
def test_a_file_in_another(lab: Lab, packed: Callable[[bytes], bytes], told: str) -> None:
    """Under a name that promises nothing, with something behind it, or in an archive."""
    path = old(lab, "aside/old.parquet")
    (lab.folder / "t" / "_kept").mkdir()
    (lab.folder / "t" / "_kept" / "part-0").write_bytes(packed(path.read_bytes()))
    answer = ask(lab)
    assert answer.answer == "unknown"
    assert told in answer.doubts[0]


def _zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("old.parquet", data)
    return out.getvalue()


def _tar(data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("old.parquet")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    "name", ["keep.parquet", "_sidecars/0.parquet", "part-0", "keep.json", "keep.crc", "_commits/1.json"]
)
def test_a_sealed_file_of_a_log(lab: Lab, name: str) -> None:
    """A session that seals whatever it writes has sealed its checkpoints: without the key there is no table."""
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "delta"
    deltalake.write_deltalake(str(folder), people())
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    assert ask(lab, paths=folder).answer == "yes"
    place = folder / "_delta_log" / name
    place.parent.mkdir(exist_ok=True)
    shutil.copyfile(old(lab, "aside/old.parquet"), place)
    answer = ask(lab, paths=folder)
    assert answer.needed_by == [str(place)]


def test_a_file_that_is_listed_and_gone_before_it_is_opened(lab: Lab) -> None:
    """It may need the version, and may only have gone elsewhere; both lists that follow are the same."""
    path = old(lab, "t/z.parquet")
    answer = ask(lab, progress=lambda *_: path.exists() and path.rename(lab.folder / "elsewhere.parquet"))
    assert answer.answer == "unknown"
    assert {reason.place for reason in answer.reasons} == {str(path)}


def test_a_file_that_is_gone_while_it_is_listed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name that says nothing it is opened to be told, and has gone elsewhere by then."""
    path = old(lab, "t/_kept")
    real = os.scandir

    def scan(folder: str) -> Any:
        with real(folder) as inside:
            entries = list(inside)
        if path.exists():
            path.rename(lab.folder / "elsewhere.parquet")
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", scan)
    answer = ask(lab)
    assert answer.answer == "unknown"
    assert answer.doubts == [f"{path}: it was listed, and gone before it was opened"]


def test_a_file_that_was_looked_at_and_is_gone_then(lab: Lab) -> None:
    """It was seen, and is free of the version wherever it has gone."""
    path = lab.write("t/b.parquet")
    answer = ask(lab, progress=lambda done, _: done == 2 and path.exists() and path.unlink())
    assert answer.answer == "yes"


@pytest.mark.parametrize("whole", [Lab.write, Lab.signed, Lab.plain])
def test_a_file_hidden_in_another(lab: Lab, whole: Callable[..., Path]) -> None:
    """Glued together: readers go where the last footer sends them, and never see the first file."""
    hidden = old(lab, "aside/old.parquet").read_bytes()
    path = whole(lab, "t/b.parquet")
    assert ask(lab).answer == "yes"
    glued(path, hidden)
    answer = ask(lab)
    assert answer.answer == "unknown"
    assert "which no module of the file covers" in answer.doubts[0]
    path.write_bytes(b"junk" + path.read_bytes())
    assert ask(lab).answer == "unknown"


def test_a_file_hidden_in_one_of_orc(lab: Lab) -> None:
    orc = pytest.importorskip("pyarrow.orc")
    path = lab.folder / "t" / "b.orc"
    orc.write_table(people(), path)
    assert ask(lab).answer == "yes"
    data, footer = path.read_bytes(), 0
    from bloomseal.read.orc.file import OrcFile
    from bloomseal.storage.places import open_source

    with open_source(path) as source:
        footer = OrcFile(source).tail.metadata[0]
    path.write_bytes(data[:footer] + old(lab, "aside/old.parquet").read_bytes() + data[footer:])
    answer = ask(lab)
    assert answer.answer == "unknown"
    assert "which no module of the file covers" in answer.doubts[0]


def test_staged_commits_name_files_elsewhere(lab: Lab) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = lab.folder / "delta"
    deltalake.write_deltalake(str(folder), people())
    outside = old(lab, "elsewhere/old.parquet")
    for above in ("_staged_commits", "_commits"):
        staged = folder / "_delta_log" / above / f"{1:020d}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
        staged.parent.mkdir()
        staged.write_text(json.dumps({"add": {"path": outside.as_uri()}}) + "\n")
        assert ask(lab, paths=folder).needed_by == [str(outside)]
        staged.write_text("{")
        assert ask(lab, paths=folder).answer == "unknown"
        shutil.rmtree(staged.parent)
    assert ask(lab, paths=folder).answer == "yes"


def test_iceberg_metadata_whose_name_has_no_number(lab: Lab) -> None:
    """A catalog may have committed it last."""
    table, older = _iceberg(lab)
    folder = older.parent.parent
    table.append(people().select(["id", "ssn"]))
    assert ask(lab, paths=folder).answer == "yes"
    newest = Path(table.metadata_location.removeprefix("file://"))
    newest.rename(newest.with_name("latest.metadata.json"))
    answer = ask(lab, paths=folder)
    assert answer.answer == "unknown"
    assert any("no number" in doubt for doubt in answer.doubts)


def test_iceberg_metadata_that_name_files_of_expired_snapshots_elsewhere(lab: Lab) -> None:
    table, _ = _iceberg(lab)
    outside = lab.folder / "elsewhere" / "x.parquet"
    outside.parent.mkdir()
    pq.write_table(people().select(["id", "ssn"]), outside)
    table.add_files([outside.as_uri()])
    seal_file(
        outside, encryption=EncryptionSpec("footer", {"ssn": "pii"}, KeyTools(Keyring(lab.folder / "before.json")))
    )
    named = table.current_snapshot().snapshot_id
    table.overwrite(people().select(["id", "ssn"]))
    with table.maintenance.expire_snapshots() as expire:
        expire.by_id(named)
    folder = Path(table.location().removeprefix("file://"))
    assert ask(lab, paths=folder).needed_by == [str(outside)]


@pytest.mark.parametrize("name", ["write.data.path", "write.object-storage.path"])
def test_iceberg_files_that_go_elsewhere(lab: Lab, name: str) -> None:
    table, _ = _iceberg(lab)
    elsewhere = lab.folder / "elsewhere"
    with table.transaction() as change:
        change.set_properties({name: elsewhere.as_uri()})
    folder = Path(table.location().removeprefix("file://"))
    answer = ask(lab, paths=folder)
    assert answer.answer == "unknown"
    assert [reason.place for reason in answer.reasons] == [str(elsewhere)]
    lab.write("elsewhere/a.parquet")
    assert ask(lab, paths=folder, also=elsewhere).answer == "yes"
    with table.transaction() as change:
        change.set_properties({name: (folder / "data").as_uri()})
    assert ask(lab, paths=folder, also=elsewhere).answer == "yes"


def test_what_is_no_data_leaves_no_doubt(lab: Lab) -> None:
    for name, data in {"_SUCCESS": b"", "readme.txt": b"plain", "_a.json": b"{}", ".a.parquet.crc": b"crc\0"}.items():
        (lab.folder / "t" / name).write_bytes(data)
    answer = ask(lab)
    assert answer.answer == "yes"
    assert "2 files that are no Parquet" in answer.not_looked_at[1]
    _, newest = _iceberg(lab)
    packed = newest.with_name("00009-x.gz.metadata.json")
    packed.write_bytes(gzip.compress(newest.read_bytes()))
    assert not any("gzip" in doubt for doubt in ask(lab, paths=newest.parent.parent).doubts)


def test_one_of_several_places_is_empty(lab: Lab) -> None:
    (lab.folder / "empty").mkdir()
    answer = ask(lab, paths=[lab.folder / "t", lab.folder / "empty"])
    assert (answer.answer, [reason.place for reason in answer.reasons]) == ("unknown", [str(lab.folder / "empty")])


def test_a_file_that_is_not_finished(lab: Lab) -> None:
    whole = (lab.folder / "t" / "a.parquet").read_bytes()
    for name in (".a.parquet.12.bloomseal-tmp", "_temporary/0/part-0.snappy.parquet", ".b.parquet.inprogress.7"):
        part = lab.folder / "t" / name
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(whole[:-100])
        answer = ask(lab)
        assert (answer.answer, [reason.place for reason in answer.reasons]) == ("unknown", [str(part)])
        part.unlink()
    (lab.folder / "t" / ".a.parquet.crc").write_bytes(b"crc\0sums")  # Hadoop's checksums
    assert ask(lab).answer == "yes"


def test_key_material_that_is_not_the_files(lab: Lab) -> None:
    lab.write("t/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    lab.write("aside/a.parquet", encryption={"keys": KeyTools(lab.keyring, internal=False)})
    name = "_KEY_MATERIAL_FOR_a.parquet.json"
    shutil.copyfile(lab.folder / "aside" / name, lab.folder / "t" / name)
    # All of it is under version 2; the file's own keys may be under any.
    assert ask(lab).answer == "unknown"


def test_a_writer_that_may_still_hold_a_key(lab: Lab) -> None:
    answer = ask(lab, after=600)
    assert answer.answer == "unknown"
    assert answer.question.wait_until is not None
    assert f"{answer.question.wait_until:%Y-%m-%d %H:%M:%S}" in str(answer.reasons[0])
    assert ask(lab, after=None).answer == "unknown"  # by default the cache lifetime of the key tools


class _Clocked(Keyring):
    """A keyring whose dates are those of another clock, which it tells."""

    behind = timedelta(0)

    def describe(self, master_key_identifier: str, wrapped_key: str | None = None) -> MasterKeyFacts:
        found = super().describe(master_key_identifier, wrapped_key)
        versions = tuple(
            replace(one, retired=one.retired and one.retired - self.behind) for one in found.versions or ()
        )
        return replace(found, versions=versions, clock=datetime.now(UTC) - self.behind)


def test_a_clock_ahead_of_the_kms_ends_no_wait(lab: Lab) -> None:
    """The version was retired just now. By this machine's clock, an hour ahead, that was an hour ago."""
    kms = _Clocked(lab.folder / "keys.json")
    kms.behind = timedelta(hours=1)
    answer = ask(lab, after=600, keys=KeyTools(kms))
    assert answer.answer == "unknown"
    assert "writers may hold a key" in str(answer.reasons[0])
    assert ask(lab, after=0, keys=KeyTools(kms)).answer == "yes"


def test_a_clock_behind_the_kms_waits_longer(lab: Lab) -> None:
    kms = _Clocked(lab.folder / "keys.json")
    kms.behind = timedelta(hours=-1)
    assert ask(lab, after=600, keys=KeyTools(kms)).answer == "unknown"


def test_the_version_that_wraps_now(lab: Lab) -> None:
    answer = ask(lab, "1", key="other")
    assert answer.answer == "unknown"
    assert "wraps" in answer.reasons[0].what
    lab.keyring.disable("other", 1)
    assert ask(lab, "1", key="other").answer == "yes"
    assert ask(lab, None, key="other").answer == "yes"
    assert ask(lab, None).answer == "no"


def test_a_version_that_is_enabled_while_files_are_looked_at(lab: Lab) -> None:
    lab.keyring.disable("other", 1)
    answer = ask(lab, "1", key="other", progress=lambda *_: lab.keyring.enable("other", 1))
    assert answer.answer == "unknown"
    assert "wraps" in answer.reasons[0].what


def test_another_keyring_in_the_place_of_the_one_that_was_asked(lab: Lab) -> None:
    lab.keyring.disable("other", 1)
    elsewhere = Keyring(lab.folder / "elsewhere.json", create=True)
    elsewhere.create("other")
    elsewhere.disable("other", 1)
    taken = lab.folder / "elsewhere.json"
    answer = ask(lab, "1", key="other", progress=lambda *_: taken.exists() and taken.rename(lab.folder / "keys.json"))
    assert answer.answer == "unknown"
    assert any("another key of this name" in reason.what for reason in answer.reasons)


def test_without_a_kms_there_is_no_yes(lab: Lab) -> None:
    (lab.folder / "plain").mkdir()
    lab.plain("plain/a.parquet")
    assert ask(lab, paths=lab.folder / "plain").answer == "yes"
    assert ask(lab, paths=lab.folder / "plain", keys=None).answer == "unknown"
    lab.signed("t/a.parquet")
    assert ask(lab, keys=None).answer == "unknown"
    assert ask(lab, "2", keys=None).answer == "no"


def test_other_file_systems_and_equal_paths_on_two(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = pafs.SubTreeFileSystem(str(lab.folder / "remote"), pafs.LocalFileSystem())
    shutil.copytree(lab.folder / "t", lab.folder / "remote" / "t")
    assert ask(lab, paths="t", filesystem=remote).answer == "yes"
    needed = old(lab, "aside/a.parquet")

    def arrive(_: int, __: int) -> None:
        if needed.exists():
            needed.rename(lab.folder / "remote" / "t" / "a.parquet")

    assert ask(lab, paths="t", filesystem=remote, progress=arrive).answer == "no"
    # The same path here and there is two files.
    monkeypatch.chdir(lab.folder)
    systems = {"t": None, "remote://t": remote}
    monkeypatch.setattr(
        "bloomseal.audit.facts.places.resolve_path",
        lambda path, _: FileRef(path.removeprefix("remote://"), systems[path]),
    )
    monkeypatch.setattr(
        "bloomseal.storage.discovery.tables.resolve_path",
        lambda path, filesystem: FileRef(path.removeprefix("remote://"), filesystem),
    )
    answer = ask(lab, paths=["t", "remote://t"])
    assert (answer.answer, answer.files) == ("no", 2)


def test_a_column_that_one_may_not_open(lab: Lab) -> None:
    """Who asks without the right to some key gets no yes, whatever the file says about it."""
    lab.keyring.disable("pii", 2)
    answer = ask(lab, key="footer")
    assert (answer.answer, [reason.column for reason in answer.reasons]) == ("unknown", ["ssn", "name"])
    assert "disabled" in answer.doubts[0]
