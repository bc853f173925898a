"""A pipe, a device or a folder where a file should be: an error of ours at once, never a wait."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools.material.store import MaterialStore
from bloomseal.rotation.journal import Journal

SPEC = bs.EncryptionSpec(footer_key=b"f" * 16)
KEYS = bs.DecryptionSpec(bs.ExplicitKeys(footer_key=b"f" * 16))
SMALL = pa.table({"a": list(range(100))})


def _tools(path: Path) -> bs.KeyTools:
    keyring = bs.Keyring(path.parent / "ring.json", create=True)
    keyring.create("k")
    return bs.KeyTools(keyring, internal=False)


def _with_sidecar(act: Callable[[Path, bs.KeyTools], object]) -> Callable[[Path], object]:
    """The key material beside `path` is what is odd."""

    def run(sidecar: Path) -> object:
        path = sidecar.parent / "t.parquet"
        tools = _tools(path)
        bs.write_table(SMALL, path, encryption=bs.EncryptionSpec(footer_key="k", keys=_tools_inside(tools)))
        return act(path, tools)

    return run


def _tools_inside(tools: bs.KeyTools) -> bs.KeyTools:
    return tools.storing(internal=True)


CASES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "read": ("t.parquet", lambda path: bs.read_table(path, decryption=KEYS)),
    "verify": ("t.parquet", lambda path: bs.verify(path, decryption=KEYS)),
    "inspect": ("t.parquet", bs.inspect),
    "attach": ("t.parquet", lambda path: bs.attach_filters(path, {"a": True}, decryption=KEYS)),
    "rekey": ("t.parquet", lambda path: bs.rekey(path, decryption=KEYS, encryption=SPEC)),
    "rewrap": ("t.parquet", lambda path: bs.rewrap(path, decryption=bs.DecryptionSpec(_tools(path)))),
    "write": ("t.parquet", lambda path: bs.write_table(SMALL, path, encryption=SPEC)),
    "unseal onto": ("t.parquet", lambda path: _onto(path)),
    "sidecar read": ("_KEY_MATERIAL_FOR_t.parquet.json", lambda path: MaterialStore(FileRef(str(path.parent / "t.parquet"))).read()),
    "sidecar write": (
        "_KEY_MATERIAL_FOR_t.parquet.json",
        _with_sidecar(lambda path, tools: bs.write_table(SMALL, path, encryption=bs.EncryptionSpec(footer_key="k", keys=tools))),
    ),
    "sidecar rewrap": (
        "_KEY_MATERIAL_FOR_t.parquet.json",
        _with_sidecar(lambda path, tools: bs.rewrap(path, decryption=bs.DecryptionSpec(tools))),
    ),
    "keyring": ("keyring.json", lambda path: bs.Keyring(path).wrap_key(b"f" * 16, "k")),
    "policy": ("policy.toml", bs.Policy.load),
    "journal": ("run.jsonl", lambda path: Journal(path, "rekey", "0" * 32)),
}  # fmt: skip


def _onto(path: Path) -> object:
    sealed = path.with_name("sealed.parquet")
    bs.write_table(SMALL, sealed, encryption=SPEC)
    return bs.unseal_file(sealed, path, decryption=KEYS)


def _make(kind: str, path: Path) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path, 0o600)
        case "socket":
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(os.path.relpath(path))
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()


def _told(case: str, path: Path, answer: Any) -> None:
    try:
        answer.put(("no error", repr(CASES[case][1](path))))
    except bs.BloomsealError as error:
        answer.put(("ours", str(error)))
    except BaseException:
        answer.put(("foreign", traceback.format_exc()))


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / CASES[case][0]
    _make(kind, path)
    if kind == "device" and case in ("write", "unseal onto"):
        pytest.skip("a link to a device is replaced where it points, if at all")
    fork = multiprocessing.get_context("fork")
    answer: Any = fork.SimpleQueue()
    child = fork.Process(target=_told, args=(case, path, answer))
    child.start()
    child.join(30)
    try:
        assert not child.is_alive(), "it waits"
    finally:
        child.kill()
    assert not answer.empty()
    how, what = answer.get()
    assert how == "ours", what


@pytest.mark.parametrize(
    "write", [lambda path: bs.write_table(SMALL, path), lambda path: bs.write_table(SMALL, path, encryption=SPEC)]
)
def test_a_pipe_or_link_among_the_leftovers_is_left_alone(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path, precious = tmp_path / "t.parquet", tmp_path / "precious"
    precious.write_bytes(b"theirs")
    os.mkfifo(tmp_path / ".t.parquet.00000000.bloomseal-tmp", 0o600)
    (tmp_path / ".t.parquet.00000001.bloomseal-tmp").symlink_to(precious)
    write(path)
    assert precious.read_bytes() == b"theirs"
    assert (
        bs.open_file(path, decryption=None if bs.inspect(path).footer.startswith("plaintext") else KEYS).num_rows == 100
    )
