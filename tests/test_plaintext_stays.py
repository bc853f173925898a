"""No plaintext page reaches a disk, under any name or none, while a file is written, attached to, sealed again or
rotated.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import bloomseal as bs
from bloomseal.rotation import Rekey, Rewrap, Seal, rotate
from support.watch import PlaintextWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the watch looks into /proc")

MARKER = b"PLAINTEXT-OF-THE-TEST-"
ROWS = pa.table(
    {
        "ssn": [f"{MARKER.decode()}{i:07d}" for i in range(30_000)],
        "name": [f"{MARKER.decode()}{i % 50}" for i in range(30_000)],
    }
)
# Recognisable on a disk: pages as they are, and dictionaries.
WRITTEN: dict[str, Any] = {"compression": "none", "use_dictionary": ["name"], "row_group_size": 3_000}
FILTERS = {"ssn": True, "name": True}
_MOMENT = 1.5
"""Seconds, for a watch on a busy machine."""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, and the current one, both watched."""
    folder = tmp_path / "temp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    columns = {"ssn": {"key": "pii", "filter": True}, "name": {"filter": True}}
    table = {"footer_key": "footer", "complete": True, "columns": columns}
    return bs.Policy.from_dict({"version": 1, "tables": {"t": table}}, kms=ring).for_table("t")


def _sealed(policy: Any, path: Path) -> Path:
    bs.write_table(ROWS, path, encryption=policy, bloom_filters={"name": True}, **WRITTEN)
    return path


def _written(policy: Any, folder: Path) -> None:
    _sealed(policy, folder / "a.parquet")


def _to_a_file_system(policy: Any, folder: Path) -> None:
    """As to an object store: assembled in a file without a name, then sent."""
    files = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    bs.write_table(ROWS, "a.parquet", encryption=policy, bloom_filters=FILTERS, filesystem=files, **WRITTEN)


def _a_dataset(policy: Any, folder: Path) -> None:
    bs.write_dataset(ROWS, folder / "set", encryption=policy, bloom_filters=FILTERS, rows_per_file=10_000, **WRITTEN)


def _attached(policy: Any, folder: Path) -> None:
    bs.attach_filters(folder / "given.parquet", {"ssn": bs.FilterSpec(fpp=1e-6)}, decryption=policy)


def _rekeyed(policy: Any, folder: Path) -> None:
    rotate(folder, Rekey(policy, policy))


def _rewrapped(policy: Any, folder: Path) -> None:
    policy.keys.kms.rotate("pii")
    rotate(folder, Rewrap(policy))


def _sealed_later(policy: Any, folder: Path) -> None:
    """Its source is plaintext, and exempt until it is replaced."""
    rotate(folder, Seal(policy, bloom_filters=FILTERS, output=str(folder.parent / "sealed")))


def _erased(policy: Any, folder: Path) -> None:
    report = bs.open_table(folder, decryption=policy).erase([("name", "==", ROWS["name"][1].as_py())])
    assert report.rows == 600


def _read(policy: Any, folder: Path) -> None:
    assert bs.read_table(folder, where=[("name", "in", [ROWS["name"][1].as_py()])], decryption=policy).num_rows == 600
    assert bs.open_table(folder, decryption=policy).scan().read_all().num_rows == len(ROWS)


def _command(policy: Any, folder: Path) -> None:
    """`bloomseal write` of a CSV to standard output goes through a temporary folder: of a sealed file."""
    import subprocess

    keyring = str(policy.keys.kms.path)
    command = [Path(sys.executable).with_name("bloomseal"), "write", "rows.csv", "-", "--keyring", keyring]
    with open(folder / "out.parquet", "wb") as out:
        subprocess.run([*command, "--footer-key", "footer", "--bloom-filter", "ssn"], stdout=out, check=True)
    assert (folder / "out.parquet").read_bytes().endswith(b"PARE")


VERBS: dict[str, tuple[Callable[[Any, Path], None], str | None]] = {
    "write_table": (_written, None),
    "write_table to a file system": (_to_a_file_system, None),
    "write_dataset": (_a_dataset, None),
    "attach": (_attached, "sealed"),
    "rekey": (_rekeyed, "sealed"),
    "rewrap": (_rewrapped, "sealed"),
    "seal": (_sealed_later, "plain"),
    "erase": (_erased, "sealed"),
    "read": (_read, "sealed"),
    "bloomseal write": (_command, "csv"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_plaintext_reaches_a_disk(tmp_path: Path, temp: Path, policy: Any, verb: str) -> None:
    run, before = VERBS[verb]
    folder = tmp_path / "table"
    folder.mkdir()
    exempt = [folder / "given.parquet"] if before == "plain" else [tmp_path / "rows.csv"]
    if before == "sealed":
        _sealed(policy, folder / "given.parquet")
    elif before == "plain":
        pq.write_table(ROWS, exempt[0], compression="none", row_group_size=3_000)
    elif before == "csv":
        exempt[0].write_text("ssn\n" + "".join(f"{one}\n" for one in ROWS["ssn"].to_pylist()[:5_000]))
    with PlaintextWatch([tmp_path, temp], [MARKER], but=exempt) as watch:
        run(policy, folder)
    watch.clean()


def _named(path: Path) -> None:
    bs.unseal_file(path, path.with_name("clear.parquet"), decryption=bs.DecryptionSpec(bs.ExplicitKeys(b"f" * 16)))
    time.sleep(_MOMENT)
    path.with_name("clear.parquet").unlink()


def _without_a_name(path: Path) -> None:
    with tempfile.TemporaryFile(dir=path.parent) as file:
        pq.write_table(ROWS, file, compression="none")
        time.sleep(_MOMENT)


def _by_a_child(path: Path) -> None:
    import subprocess

    code = f"import time, tempfile; f = tempfile.TemporaryFile(); f.write({MARKER!r}); f.flush(); time.sleep({_MOMENT})"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "TMPDIR": "/tmp"})  # noqa: S108


@pytest.mark.parametrize("how", [_named, _without_a_name, _by_a_child], ids=lambda how: how.__name__)
def test_the_watch_sees_plaintext_that_is_there_for_a_moment(
    tmp_path: Path, temp: Path, how: Callable[[Path], None]
) -> None:
    """A watch that finds nothing proves something only if it can find."""
    path = tmp_path / "a.parquet"
    bs.write_table(ROWS, path, encryption=bs.EncryptionSpec(b"f" * 16), **WRITTEN)
    with PlaintextWatch([tmp_path, temp], [MARKER]) as watch:
        how(path)
    assert watch.found
