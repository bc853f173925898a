"""Attack: any change to an encrypted table: the right rows, or an error of ours, in memory that the table pays for.

Whoever holds no key changes files and the metadata. Whoever holds the table's keys also seals what he likes; then rows
may be others, and nothing but our errors may come.
"""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.core.encryption import SecretKey
from bloomseal.core.storage.ref import FileRef
from bloomseal.core.storage.source import Source
from bloomseal.storage.logs.ags1 import Ags1Stream
from bloomseal.storage.logs.iceberg_encrypted import EncryptedIcebergLog, IcebergOpening

MOST = 64 << 20
BLOCK = (1 << 20) + 28
Spec = Callable[..., bs.DecryptionSpec]


def newest(place: Path) -> Path:
    return max((place / "metadata").glob("*.metadata.json"))


def bent(chance: random.Random, data: bytes, *, same_length: bool = False) -> bytes:
    changed = bytearray(data)
    start, other = sorted(chance.randrange(len(changed)) for _ in range(2))
    match chance.randrange(3 if same_length else 5):
        case 0:
            changed[start] ^= 1 << chance.randrange(8)
        case 1:
            piece = chance.randbytes(min(8, len(changed) - start))
            changed[start : start + len(piece)] = piece
        case 2:
            part = changed[start:other]
            changed[start:other] = part[::-1]
        case 3:
            del changed[start:]
        case _:
            changed += changed[start : other + 1]
    return bytes(changed)


def confused(chance: random.Random, document: Any) -> None:
    """Another type, another place's value, or nothing, somewhere in the JSON."""
    places: list[tuple[Any, Any]] = []
    stack = [document]
    while stack:
        one = stack.pop()
        inside = list(one.items()) if isinstance(one, dict) else list(enumerate(one)) if isinstance(one, list) else []
        places += [(one, name) for name, _ in inside]
        stack += [value for _, value in inside]
    holder, name = chance.choice(places)
    there = holder[name]
    values = [None, 0, -1, 1 << 70, 1.5, "", "x", "../x", [], {}, [there], {"x": there}, True, there, str(there)]
    match chance.randrange(4):
        case 0:
            other, at = chance.choice(places)
            holder[name] = json.loads(json.dumps(other[at]))
        case 1 if isinstance(holder, dict):
            del holder[name]
        case 2 if isinstance(holder, list):
            holder += holder[chance.randrange(len(holder)) :]
        case _:
            holder[name] = chance.choice(values)


class Victim:
    """A copy of a table, one file of which is changed at a time."""

    def __init__(self, vectors: Path, spec: Spec, place: Path, name: str, **more: Any) -> None:
        self.place = Path(shutil.copytree(vectors / "tables" / name, place / name))
        self.spec, self.more, self.others = spec, more, vectors / "tables"
        self.files = sorted(path for path in self.place.rglob("*") if path.is_file())
        self.size = sum(path.stat().st_size for path in self.files)
        self.log = EncryptedIcebergLog(FileRef(str(self.place)), self.opening)
        self.right = self.rows()

    @property
    def opening(self) -> IcebergOpening:
        opening = self.spec(**self.more)
        return IcebergOpening(opening.iceberg, lambda blob, name: SecretKey(opening.keys.unwrap_bytes(blob, name)))

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = bs.read_table(self.place, decryption=self.spec(**self.more), threads=1).to_pylist()
        return rows

    def is_right(self, rows: list[dict[str, Any]]) -> bool:
        """Nothing seals which columns the table's schema has: one may be left out."""
        names = rows[0].keys() if rows else ()
        right = [{name: row[name] for name in names if name in row} for row in self.right]
        return bool(rows) and sorted(map(ordered, rows)) == sorted(map(ordered, right))

    def outsider(self, chance: random.Random) -> tuple[Path, bytes]:
        """A file, and what somebody without a key puts in its place."""
        match chance.randrange(6):
            case 0 | 1:
                path = newest(self.place)
                document = json.loads(path.read_text())
                for _ in range(chance.randrange(1, 4)):
                    confused(chance, document)
                return path, json.dumps(document).encode()
            case 2:  # replay: an older state, or another file of the table
                path = chance.choice(self.files)
                return path, chance.choice([one for one in self.files if one.suffix == path.suffix]).read_bytes()
            case 3:  # another table's, under the same master key
                path = chance.choice([one for one in self.files if one.suffix != ".parquet"])
                other = self.others / chance.choice(["people16", "eqdel16", "hole_swapped_manifests", "dv16"])
                return path, chance.choice(sorted(other.rglob(f"*{path.suffix}"))).read_bytes()
            case _:
                path = chance.choice(self.files)
                return path, bent(chance, path.read_bytes())

    def insider(self, chance: random.Random) -> tuple[Path, bytes]:
        """The same of somebody with the table's keys."""
        path, key = chance.choice(sorted(self.log.stream_keys().items(), key=lambda one: one[0]))
        match chance.randrange(4):
            case 0:  # key metadata of the manifest list
                newest_file = newest(self.place)
                document = json.loads(newest_file.read_text())
                kek = next(one for one in document["encryption-keys"] if "properties" in one)
                aad, secret = kek["properties"]["KEY_TIMESTAMP"].encode(), AESGCM(self.log.kek.key.reveal())
                for one in document["encryption-keys"]:
                    if one["encrypted-by-id"] == kek["key-id"]:
                        blob, nonce = base64.b64decode(one["encrypted-key-metadata"]), os.urandom(12)
                        plain = bent(chance, secret.decrypt(blob[:12], blob[12:], aad)) or b"\x01"
                        sealed = nonce + secret.encrypt(nonce, plain, aad)
                        one["encrypted-key-metadata"] = base64.b64encode(sealed).decode()
                return newest_file, json.dumps(document).encode()
            case _:
                data = Path(path).read_bytes()
                stream = Ags1Stream(Source.memory(data), key.key, key.prefix, len(data))
                # A manifest's length stands in the list.
                plain = bent(chance, stream.read(0, stream.size), same_length="snap-" not in path) or b"x"
                return Path(path), sealed_stream(plain, key.key.reveal(), key.prefix)

    def try_one(self, path: Path, data: bytes, *, exact: bool) -> None:
        before, peak = rss(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        there = path.read_bytes()
        path.write_bytes(data)
        try:
            rows = self.rows()
        except bs.BloomsealError:
            rows = self.right
        finally:
            path.write_bytes(there)
        assert not exact or self.is_right(rows)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert after == peak or after * 1024 - before <= self.size + len(data) + MOST


def ordered(row: dict[str, Any]) -> str:
    return str(sorted(row.items()))


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def sealed_stream(plain: bytes, key: bytes, prefix: bytes) -> bytes:
    """One block, or several."""
    made = b"AGS1" + (1 << 20).to_bytes(4, "little")
    for number, start in enumerate(range(0, max(len(plain), 1), 1 << 20)):
        nonce = os.urandom(12)
        made += nonce + AESGCM(key).encrypt(
            nonce, plain[start : start + (1 << 20)], prefix + number.to_bytes(4, "little")
        )
    return made


def check_stream(chance: random.Random, plain: bytes, sealed: bytes, other: bytes) -> None:
    """Blocks that are swapped, cut off, taken from another file of the same key, or from another place."""
    blocks = [sealed[start : start + BLOCK] for start in range(8, len(sealed), BLOCK)]
    foreign = [other[start : start + BLOCK] for start in range(8, len(other), BLOCK)]
    at, to = (chance.randrange(len(blocks)) for _ in range(2))
    match chance.randrange(6):
        case 0:
            blocks[at], blocks[to] = blocks[to], blocks[at]
        case 1:
            del blocks[at:]
        case 2:
            blocks[at] = foreign[to]
        case 3:
            blocks.insert(at, blocks[to])
        case 4:
            del blocks[at]
        case _:
            blocks[at] = bent(chance, blocks[at])
    data = sealed[:8] + b"".join(blocks)
    told = chance.choice([len(sealed), len(data), len(sealed) - BLOCK, len(sealed) + chance.randrange(-40, 40)])
    try:
        stream = Ags1Stream(Source.memory(data), SecretKey(bytes(16)), b"prefix", told)
        start = chance.randrange(stream.size + 1)
        length = chance.randrange(stream.size - start + 1)
        read = stream.read(start, length)
    except bs.BloomsealError:
        return
    assert read == plain[start : start + length]


@pytest.fixture(scope="session")
def streams() -> tuple[bytes, bytes, bytes]:
    plain = random.Random(0).randbytes((2 << 20) + 1000)
    other = random.Random(1).randbytes((2 << 20) + 1000)
    return plain, sealed_stream(plain, bytes(16), b"prefix"), sealed_stream(other, bytes(16), b"another")


def check_mutants(vectors: Path, spec: Spec, streams: Any, place: Path, seed: int, count: int) -> None:
    chance = random.Random(seed)
    name, master = ("parts16", "master-main") if seed % 5 == 0 else ("small32", "master-long")
    outside = Victim(vectors, spec, place, name, master=master, min_sequence_number=2)
    inside = Victim(vectors, spec, place, "hole_rust_like", allow_unknown_length=True)
    for number in range(count):
        match number % 8:
            case 0:
                check_stream(chance, *streams)
            case 1 | 2 | 3:
                inside.try_one(*inside.insider(chance), exact=False)
            case _:
                outside.try_one(*outside.outsider(chance), exact=True)


def test_mutants_give_the_right_rows_or_an_error(vectors: Path, spec: Spec, streams: Any, tmp_path: Path) -> None:
    check_mutants(vectors, spec, streams, tmp_path, 0, 64)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 51))
def test_many_mutants(vectors: Path, spec: Spec, streams: Any, tmp_path: Path, seed: int) -> None:
    check_mutants(vectors, spec, streams, tmp_path, seed, 2000)
