"""Who may read a new file: nobody who may not read what it was made from, at no moment."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.core.storage.ref import FileRef
from bloomseal.core.storage.source import Source
from bloomseal.rotation import Repair, rotate
from bloomseal.storage.atomic import AtomicFile
from bloomseal.storage.folder import Folder
from bloomseal.storage.replacement import replace
from support.orc_files import orc_file, orc_ring

SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)
KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
SMALL = pa.table({"a": list(range(100))})
ACL = "system.posix_acl_access"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _list(user: int, group: int, mask: int) -> bytes:
    """A POSIX access list: the owner reads and writes, user 12345 has `user`, others nothing."""
    nobody = 0xFFFFFFFF
    entries = [(1, 6, nobody), (2, user, 12345), (4, group, nobody), (16, mask, nobody), (32, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def _access_list(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, ACL)
    except OSError:
        return None


CONVERSIONS: dict[str, Callable[[Path, Path], object]] = {
    "unseal": lambda path, out: bs.unseal_file(path, out, decryption=KEYS),
    "rekey": lambda path, out: bs.rekey(path, out, decryption=KEYS, encryption=SPEC),
}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o644])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_a_conversion_to_another_place_is_its_owners_alone_until_it_has_its_sources_mode(
    tmp_path: Path, name: str, mode: int
) -> None:
    path, out = tmp_path / "a.parquet", tmp_path / "out" / "b.parquet"
    out.parent.mkdir()
    bs.write_table(SMALL, path, encryption=SPEC, row_group_size=10)
    path.chmod(mode)
    seen = set()
    convert = bs.unseal_file if name == "unseal" else bs.rekey
    more = {} if name == "unseal" else {"encryption": SPEC}
    convert(path, out, decryption=KEYS, progress=lambda *_: seen.update(map(_mode, out.parent.iterdir())), **more)
    assert seen == {0o600}
    assert _mode(out) == mode


@pytest.mark.parametrize("there", [0o600, 0o644, 0o666])
def test_a_plaintext_put_over_an_open_file_is_not_open(tmp_path: Path, there: int) -> None:
    path, out = tmp_path / "a.parquet", tmp_path / "b.parquet"
    bs.write_table(SMALL, path, encryption=SPEC)
    path.chmod(0o640)
    out.write_bytes(b"")
    out.chmod(there)
    bs.unseal_file(path, out, decryption=KEYS)
    assert _mode(out) == there & 0o640


@pytest.mark.parametrize("job", ["attach", "rekey", "rewrap", "seal", "unseal", "write"])
def test_replacing_keeps_the_mode_and_nothing_beyond(tmp_path: Path, job: str) -> None:
    path = tmp_path / "a.parquet"
    keyring = bs.Keyring(tmp_path / "keyring.json", create=True)
    keyring.create("k")
    spec, keys = bs.EncryptionSpec(footer_key="k", keys=keyring), bs.DecryptionSpec(keyring)
    bs.write_table(SMALL, path, encryption=None if job == "seal" else spec)
    path.chmod(0o4640)
    keyring.rotate("k")
    {
        "attach": lambda: bs.attach_filters(path, {"a": True}, decryption=keys),
        "rekey": lambda: bs.rekey(path, decryption=keys, encryption=spec),
        "rewrap": lambda: bs.rewrap(path, decryption=keys),
        "seal": lambda: bs.seal_file(path, encryption=spec),
        "unseal": lambda: bs.unseal_file(path, path, decryption=keys),
        "write": lambda: bs.write_table(SMALL, path, encryption=spec),
    }[job]()
    assert _mode(path) == 0o640


@pytest.mark.parametrize("job", ["attach", "repair", "rekey", "table"])
def test_replacing_an_orc_file_keeps_the_mode_and_nothing_beyond(tmp_path: Path, job: str) -> None:
    ring = orc_ring(tmp_path / "keyring.json")
    path = orc_file(tmp_path / "t" / "a.orc", ring)
    path.chmod(0o4640)
    keys, before = bs.DecryptionSpec(ring, allow_ctr=True), path.read_bytes()
    {
        "attach": lambda: bs.attach_filters(path, {"s.b": bs.FilterSpec(fpp=0.1)}, decryption=keys),
        "repair": lambda: orc.repair_filters(path, decryption=keys),
        "rekey": lambda: orc.rekey(path, decryption=keys),
        "table": lambda: rotate(path.parent, Repair(keys)),
    }[job]()
    assert path.read_bytes() != before
    assert _mode(path) == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["a.orc"]


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists are asked for as Linux keeps them")
@pytest.mark.parametrize("name", CONVERSIONS)
def test_an_access_list_goes_along(tmp_path: Path, name: str) -> None:
    """The group bits of a file with a list are the list's mask: alone, they would open it to the group."""
    path, out = tmp_path / "a.parquet", tmp_path / "b.parquet"
    bs.write_table(SMALL, path, encryption=SPEC)
    try:
        os.setxattr(path, ACL, _list(user=4, group=0, mask=4))
    except OSError:
        pytest.skip("the file system keeps no access lists")
    CONVERSIONS[name](path, out)
    assert _access_list(out) == _access_list(path) == _list(user=4, group=0, mask=4)
    CONVERSIONS[name](path, path)
    assert _access_list(path) == _list(user=4, group=0, mask=4)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists are asked for as Linux keeps them")
def test_the_folders_default_list_opens_nothing(tmp_path: Path) -> None:
    """A file made before the folder had its list is not given to the list's users by being replaced."""
    path = tmp_path / "a.parquet"
    bs.write_table(SMALL, path, encryption=SPEC)
    path.chmod(0o640)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", _list(user=6, group=4, mask=6))
    except OSError:
        pytest.skip("the file system keeps no access lists")
    bs.attach_filters(path, {"a": True}, decryption=KEYS)
    assert _access_list(path) is None
    assert _mode(path) == 0o640


def test_another_file_in_the_place_of_the_file_aside_is_neither_opened_up_nor_placed(tmp_path: Path) -> None:
    """Whoever writes to the folder hung a private file of the writer's there, and its mode was changed by path."""
    path, private = tmp_path / "a.parquet", tmp_path / "private"
    path.write_bytes(b"old")
    path.chmod(0o666)
    private.write_bytes(b"secret")
    private.chmod(0o600)

    def exchange(_: Source) -> None:
        (aside,) = tmp_path.glob(".a.parquet.*")
        aside.unlink()
        os.link(private, aside)

    with AtomicFile(FileRef(str(path))) as out:
        out.write(b"new")
        with pytest.raises(bs.BloomsealError, match="exchanged"):
            out.commit(exchange)
    assert _mode(private) == 0o600
    assert path.read_bytes() == b"old"


def test_a_link_in_the_place_of_the_target_is_not_followed(tmp_path: Path) -> None:
    path, outside = tmp_path / "a.parquet", tmp_path / "outside"
    path.write_bytes(b"old")
    outside.write_bytes(b"theirs")
    with AtomicFile(FileRef(str(path))) as out:
        out.write(b"new")
        path.unlink()
        path.symlink_to(outside)
        out.commit(lambda _: None)
    assert outside.read_bytes() == b"theirs"
    assert path.read_bytes() == b"new"


def test_a_folder_exchanged_meanwhile_gets_nothing(tmp_path: Path) -> None:
    """The folder is opened once: a link put in its place does not lead the new file elsewhere."""
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "a.parquet").write_bytes(b"theirs")
    with AtomicFile(FileRef(str(folder / "a.parquet"))) as out:
        out.write(b"new")
        folder.rename(tmp_path / "moved")
        folder.symlink_to(elsewhere)
        out.commit(lambda _: None)
    assert (elsewhere / "a.parquet").read_bytes() == b"theirs"
    assert (tmp_path / "moved" / "a.parquet").read_bytes() == b"new"


def test_small_files_hand_on_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "small"
    with Folder.at(tmp_path) as folder:
        replace(folder, "small", b"1", mode=0o600)
        assert _mode(path) == 0o600
        path.chmod(0o400)
        replace(folder, "small", b"2", mode=0o666)
    assert (path.read_bytes(), _mode(path)) == (b"2", 0o400)
    assert list(tmp_path.iterdir()) == [path]


# The owner, attributes, and key material beside a file


def _as_it_is_rewritten(tmp_path: Path, job: str, *, external: bool = False) -> tuple[Path, Callable[[], object]]:
    """A private file, and a job that replaces it."""
    path = tmp_path / "a.parquet"
    ring = bs.Keyring(tmp_path / "keyring.json", create=True)
    ring.create("k")
    tools = bs.KeyTools(ring, internal=not external)
    spec, keys = bs.EncryptionSpec(footer_key="k", keys=tools), bs.DecryptionSpec(bs.KeyTools(ring))
    bs.write_table(SMALL, path, encryption=None if job == "seal" else spec)
    ring.rotate("k")
    jobs: dict[str, Callable[[], object]] = {
        "attach": lambda: bs.attach_filters(path, {"a": True}, decryption=keys),
        "rekey": lambda: bs.rekey(path, decryption=keys, encryption=spec),
        "rewrap": lambda: bs.rewrap(path, decryption=keys),
        "seal": lambda: bs.seal_file(path, encryption=spec),
        "unseal": lambda: bs.unseal_file(path, path, decryption=keys),
    }
    return path, jobs[job]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("job", ["attach", "rekey", "rewrap", "seal", "unseal"])
def test_a_file_keeps_its_owner(tmp_path: Path, job: str) -> None:
    """Rewritten by root, a private file was root's, and its owner was locked out."""
    path, rewrite = _as_it_is_rewritten(tmp_path, job, external=True)
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
    for one in (path, sidecar):
        if one.exists():
            os.chown(one, 12345, 23456)
            one.chmod(0o600)
    rewrite()
    for one in (path, sidecar):
        if one.exists():
            assert (one.stat().st_uid, one.stat().st_gid, _mode(one)) == (12345, 23456, 0o600), one


@pytest.mark.parametrize("job", ["attach", "rekey", "rewrap", "seal", "unseal"])
def test_a_file_keeps_its_attributes(tmp_path: Path, job: str) -> None:
    path, rewrite = _as_it_is_rewritten(tmp_path, job)
    try:
        os.setxattr(path, "user.retention", b"seven years")
    except (AttributeError, OSError):
        pytest.skip("the file system keeps no attributes")
    before = path.read_bytes()
    rewrite()
    assert path.read_bytes() != before
    assert os.getxattr(path, "user.retention") == b"seven years"


@pytest.mark.parametrize("job", ["seal", "rekey"])
def test_new_key_material_is_no_more_open_than_its_file(tmp_path: Path, job: str) -> None:
    """Beside a file of mode 0600, and beside the output made from one."""
    path, _ = _as_it_is_rewritten(tmp_path, job)
    out = tmp_path / "out" / "b.parquet"
    out.parent.mkdir()
    path.chmod(0o600)
    ring = bs.Keyring(tmp_path / "keyring.json")
    spec = bs.EncryptionSpec(footer_key="k", keys=bs.KeyTools(ring, internal=False))
    for to in (out, None):
        if job == "seal":
            bs.seal_file(path, to, encryption=spec)
        else:
            bs.rekey(path, to, decryption=bs.DecryptionSpec(ring), encryption=spec)
        target = to or path
        sidecar = target.with_name(f"_KEY_MATERIAL_FOR_{target.name}.json")
        assert (_mode(target), _mode(sidecar)) == (0o600, 0o600)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="access lists are asked for as Linux keeps them")
@pytest.mark.parametrize("what", [ACL, "user.retention"])
def test_what_can_not_be_carried_over_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    path, rewrite = _as_it_is_rewritten(tmp_path, "unseal")
    try:
        os.setxattr(path, what, _list(user=4, group=0, mask=4) if what == ACL else b"seven years")
    except OSError:
        pytest.skip("the file system keeps none")
    before = path.read_bytes()
    real = os.setxattr

    def refuse(place: object, name: str, *rest: object) -> None:
        if name == what:
            raise PermissionError(1, "Operation not permitted")
        real(place, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(bs.BloomsealError, match="can't be carried over") as refused:
        rewrite()
    assert refused.value.file == str(path)
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*"))
