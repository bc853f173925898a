"""An object store that fails: the right answer or an error of ours, and no object is ever lost or half there."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import numpy as np
import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, S3FileSystem

import bloomseal as bs
from bloomseal.rotation import Rekey, rotate
from bloomseal.rotation.outcome import Status
from crash.s3_endpoint import Endpoint, Failure, Request, serving

OLD, NEW = (pa.table({"id": range(start, start + 50)}) for start in (0, 1000))
FILTER = {"id": bs.FilterSpec(num_bytes=64)}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with serving() as endpoint:
        yield endpoint


class Store:
    """A table in a bucket of its own: a file with its key material beside it."""

    def __init__(self, endpoint: Endpoint, folder: Path, bucket: str) -> None:
        endpoint.reset()
        endpoint.forget_listings()
        self.endpoint = endpoint
        self.filesystem: S3FileSystem = endpoint.filesystem()
        self.filesystem.create_dir(bucket)
        self.folder, self.path = f"{bucket}/t", f"{bucket}/t/0.parquet"
        self._journal = folder / f"{bucket}.jsonl"
        if not (folder / "keys.json").exists():
            bs.Keyring(folder / "keys.json", create=True).create("k")
        self.keys = bs.Keyring(folder / "keys.json")
        bs.write_table(OLD, self.path, encryption=self.encryption(), filesystem=self.filesystem)

    def encryption(self) -> bs.EncryptionSpec:
        return bs.EncryptionSpec("k", keys=bs.KeyTools(self.keys, internal=False))

    def decryption(self) -> bs.DecryptionSpec:
        return bs.DecryptionSpec(bs.KeyTools(self.keys))

    def write(self) -> None:
        bs.write_table(NEW, self.path, encryption=self.encryption(), filesystem=self.filesystem)

    def append(self) -> None:
        bs.write_dataset(NEW, self.folder, encryption=self.encryption(), mode="append", filesystem=self.filesystem)

    def read(self) -> None:
        assert bs.read_table(self.folder, decryption=self.decryption(), filesystem=self.filesystem).equals(OLD)

    def attach(self) -> None:
        bs.attach_filters(self.path, FILTER, decryption=self.decryption(), filesystem=self.filesystem)

    def rekey(self) -> None:
        report = rotate(self.folder, Rekey(self.decryption()), filesystem=self.filesystem, journal=self._journal)
        if not report.ok:
            raise bs.BloomsealError(str(report.files[0].why))

    def state(self) -> list[list[int]]:
        """The rows of each file, after every module was opened."""
        found = []
        for info in self.filesystem.get_file_info(FileSelector(self.folder)):
            if info.path.endswith(".parquet"):
                with bs.open_file(info.path, decryption=self.decryption(), filesystem=self.filesystem) as file:
                    assert file.verify().ok
                    found.append(file.read()["id"].to_pylist())
        return sorted(found)


OLD_ROWS, NEW_ROWS = OLD["id"].to_pylist(), NEW["id"].to_pylist()
VERBS: dict[str, tuple[Callable[[Store], None], list[list[int]]]] = {
    "write": (Store.write, [NEW_ROWS]),
    "append": (Store.append, [OLD_ROWS, NEW_ROWS]),
    "read": (Store.read, [OLD_ROWS]),
    "attach": (Store.attach, [OLD_ROWS]),
    "rekey": (Store.rekey, [OLD_ROWS]),
}


def _one(endpoint: Endpoint, folder: Path, verb: str, failure: Failure, chance: random.Random, name: str) -> str:
    run, done = VERBS[verb]
    store = Store(endpoint, folder, name)
    store.state()
    endpoint.reset()
    at, lasting = chance.randrange(25), chance.random() < 0.5
    endpoint.reset(lambda request: failure if request.number == at or (lasting and request.number > at) else None)
    try:
        run(store)
    except bs.BloomsealError:
        came = "error"
    else:
        came = "done"
    endpoint.reset()
    state = store.state()
    assert state in ([OLD_ROWS], done), (verb, failure, at, lasting, came)
    if came == "done":
        assert state == done, (verb, failure, at, lasting)
    elif state == [OLD_ROWS]:
        run(store)
        assert store.state() == done
    return came


@pytest.mark.parametrize("verb", VERBS)
def test_requests_that_fail(endpoint: Endpoint, tmp_path: Path, verb: str) -> None:
    for number, failure in enumerate(Failure):
        _one(endpoint, tmp_path, verb, failure, random.Random(f"1 {verb} {failure}"), f"{verb}-{number}")


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("verb", VERBS)
def test_many_requests_that_fail(endpoint: Endpoint, tmp_path: Path, verb: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(f"{seed} {verb}")
    for number in range(60):
        _one(endpoint, tmp_path, verb, list(Failure)[number % len(Failure)], chance, f"{verb}-many-{number}")


@pytest.mark.parametrize("instant", ["uploads", "partNumber=1", "uploadId"])
@pytest.mark.parametrize("what", ["0.parquet", "_KEY_MATERIAL_FOR_0.parquet.json"])
def test_an_interrupted_upload_is_whole(endpoint: Endpoint, tmp_path: Path, instant: str, what: str) -> None:
    """Arrow's stream completes its object when it is dropped, with what it has; here it has nothing yet."""
    store = Store(endpoint, tmp_path, f"interrupt-{instant.partition('=')[0].lower()}-{len(what)}")
    done = []

    def interrupt(request: Request) -> None:
        if not done and request.path.endswith(what) and instant in request.query:
            done.append(request)
            os.kill(os.getpid(), signal.SIGINT)

    endpoint.reset(interrupt)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        store.write()
    assert done
    endpoint.reset()
    assert store.state() in ([OLD_ROWS], [NEW_ROWS])


def test_an_interrupt_between_the_parts_of_a_long_upload(endpoint: Endpoint, tmp_path: Path) -> None:
    """The object had been completed with the parts so far, in the place of the old one."""
    store = Store(endpoint, tmp_path, "long")
    long = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 62, 3_000_000)})

    def interrupt(request: Request) -> None:
        if "partNumber=1&" in request.query and request.path.endswith("0.parquet"):
            os.kill(os.getpid(), signal.SIGINT)

    endpoint.reset(interrupt)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        bs.write_table(long, store.path, encryption=store.encryption(), filesystem=store.filesystem)
    assert sum("partNumber" in one.query and one.path.endswith("0.parquet") for one in endpoint.requests) > 2
    endpoint.reset()
    assert [len(rows) for rows in store.state()] == [len(long)]


def test_a_part_that_fails_leaves_the_old_object(endpoint: Endpoint, tmp_path: Path) -> None:
    store = Store(endpoint, tmp_path, "part")
    long = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 62, 3_000_000)})
    endpoint.reset(lambda request: Failure.SLOW_DOWN if "partNumber=2&" in request.query else None)
    with pytest.raises(bs.BloomsealError, match="can't upload"):
        bs.write_table(long, store.path, encryption=store.encryption(), filesystem=store.filesystem)
    assert sum("partNumber=2&" in request.query for request in endpoint.requests) == 1
    endpoint.reset()
    assert store.state() == [OLD_ROWS]


def test_a_listing_that_is_behind(endpoint: Endpoint, tmp_path: Path) -> None:
    """It names an object that is gone: readers and rotations say so, and take it for no empty one."""
    store = Store(endpoint, tmp_path, "behind")
    store.append()
    bs.read_table(store.folder, decryption=store.decryption(), filesystem=store.filesystem)
    store.filesystem.delete_file(store.path)
    endpoint.reset(lambda request: Failure.STALE if request.listing else None)
    with pytest.raises(bs.BloomsealError, match=r"0\.parquet"):
        bs.read_table(store.folder, decryption=store.decryption(), filesystem=store.filesystem)
    with pytest.raises(bs.BloomsealError):
        store.rekey()
    endpoint.reset()
    assert store.state() == [NEW_ROWS]


def test_a_key_that_the_client_does_not_take_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    """Arrow lists a key with two slashes in a row, and opens none: the others are rotated, and it is named."""
    store = Store(endpoint, tmp_path, "slashes")
    bs.write_table(NEW, "slashes/t/a/1.parquet", encryption=store.encryption(), filesystem=store.filesystem)
    client = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{endpoint.port}", region_name="us-east-1", aws_access_key_id="test",
        aws_secret_access_key="test",
    )  # fmt: skip
    client.copy_object(Bucket="slashes", Key="t//2.parquet", CopySource="slashes/t/a/1.parquet")
    for path in (store.folder, "slashes/t//2.parquet", "slashes//t"):
        with pytest.raises(bs.UsageError, match="two slashes"):
            bs.read_table(path, decryption=store.decryption(), filesystem=store.filesystem)
    report = rotate(store.folder, Rekey(store.decryption()), filesystem=store.filesystem, journal=tmp_path / "j")
    assert [(file.path, file.status) for file in report.files] == [
        ("s3:slashes/t//2.parquet", Status.FAILED),
        ("s3:slashes/t/0.parquet", Status.REKEYED),
        ("s3:slashes/t/a/1.parquet", Status.REKEYED),
    ]
    for path in ("slashes/t//3.parquet", "slashes//t/3.parquet"):
        with pytest.raises(bs.BloomsealError):
            bs.write_table(NEW, path, encryption=store.encryption(), filesystem=store.filesystem)
