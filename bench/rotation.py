"""`python -m bench.rotation`: what re-wrapping a large file reads and writes, and rekeying beside AES-GCM alone.

One core, ratios within one run. The cipher goes once over as many bytes as the file has, decrypt, then encrypt: as one
big buffer, and in pieces of a page's size into buffers that are there already, which is the cipher's own limit. A copy
of the file, synced, is what the file system alone takes: no rekeying can come nearer to the cipher than that.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import bloomseal as bs
from bloomseal.rotation import Rewrap, plan

COLUMNS = ("a", "b", "c", "d")
PAGE = 1 << 20
GROUP = 1 << 20


def write(path: Path, size: int, keys: bs.KeyTools) -> None:
    """About `size` bytes of random integers, uncompressed, every column under a key of its own."""
    noise = np.random.default_rng(0)
    schema = pa.schema([(name, pa.int64()) for name in COLUMNS])
    spec = bs.EncryptionSpec("footer", dict.fromkeys(COLUMNS, "pii"), keys=keys)
    options = {"compression": "none", "use_dictionary": False, "data_page_size": PAGE}
    with bs.SealedWriter(path, schema, encryption=spec, row_group_size=GROUP, **options) as out:
        for _ in range(max(size // (8 * GROUP * len(COLUMNS)), 1)):
            columns = {name: noise.integers(0, 1 << 62, GROUP) for name in COLUMNS}
            out.write_batch(pa.record_batch(columns, schema=schema))


def rewrap(path: Path, ring: bs.Keyring) -> None:
    """Every read that Python asks for is counted; what the kernel copies is not among them."""
    decryption = bs.DecryptionSpec(bs.KeyTools(ring))
    told = plan(path, Rewrap(decryption, {"pii": "pii-2"}))
    asked, real = [0], os.pread

    def counted(fd: int, length: int, offset: int) -> bytes:
        asked[0] += length
        return real(fd, length, offset)

    os.pread = counted
    wall, processor = time.perf_counter(), time.process_time()
    try:
        report = bs.rewrap(path, decryption=decryption, master_keys={"pii": "pii-2"})
    finally:
        os.pread = real
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(
        f"rewrap of {path.stat().st_size:,} bytes: {report.bytes_written:,} written (planned {told.bytes_to_write:,}), "
        f"{asked[0]:,} read, {report.bytes_copied:,} copied by the kernel; {wall:.2f} s, {processor:.2f} s of processor"
    )


OLD, NEW, NONCE, AAD = AESGCM(b"o" * 16), AESGCM(b"n" * 16), b"0" * 12, b"aad"


def one_buffer(size: int) -> Callable[[], object]:
    """Decrypt and encrypt `size` bytes in one call each."""
    sealed = OLD.encrypt(NONCE, bytes(size), AAD)
    return lambda: NEW.encrypt(NONCE, OLD.decrypt(NONCE, sealed, AAD), AAD)


def pieces(size: int) -> Callable[[], object]:
    """Decrypt and encrypt `size` bytes, out of memory that is larger than caches are, into buffers that are not."""
    pages = [OLD.encrypt(NONCE, bytes(PAGE), AAD) for _ in range(64)]
    plain, sealed = bytearray(PAGE), bytearray(PAGE + 16)

    def run() -> None:
        for number in range(size // PAGE):
            OLD.decrypt_into(NONCE, pages[number % len(pages)], AAD, plain)
            NEW.encrypt_into(NONCE, plain, AAD, sealed)

    return run


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - processor


def rekey(path: Path, keys: bs.KeyTools, repetitions: int) -> None:
    size = path.stat().st_size
    decryption = bs.DecryptionSpec(keys)
    spec = bs.EncryptionSpec("footer", dict.fromkeys(COLUMNS, "pii-2"), keys=keys)
    steps: dict[str, Callable[[], object]] = {
        "rekey, verified and synced": lambda: bs.rekey(path, decryption=decryption, encryption=spec),
        "verify": lambda: bs.verify(path, decryption=decryption),
        "decrypt + encrypt, one big buffer": one_buffer(size),
        "decrypt + encrypt, buffers reused": pieces(size),
        "copy of the file, synced": lambda: copy(path),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(repetitions):
        for name, step in steps.items():
            taken[name].append(seconds(step))
    for name, times in taken.items():
        wall, processor = (statistics.median(one) for one in zip(*times, strict=True))
        print(f"{name:<40} {size / wall / 1e6:8.0f} MB/s by the clock {size / processor / 1e6:8.0f} MB/s of processor")
    ours = taken["rekey, verified and synced"]
    for name in (
        "decrypt + encrypt, one big buffer",
        "decrypt + encrypt, buffers reused",
        "copy of the file, synced",
    ):
        by_clock, by_processor = (
            statistics.median(peer[i] / mine[i] for mine, peer in zip(ours, taken[name], strict=True)) for i in (0, 1)
        )
        print(f"rekey at {by_processor:.2f} of «{name}» (processor time), {by_clock:.2f} (clock)")
    floor = [statistics.median(one[i] for one in taken["copy of the file, synced"]) for i in (0, 1)]
    passes = [statistics.median(one[i] for one in taken["decrypt + encrypt, buffers reused"]) for i in (0, 1)]
    print(
        f"the copy itself at {passes[1] / floor[1]:.2f} of the cipher (processor time), {passes[0] / floor[0]:.2f} (clock)"
    )


def copy(path: Path) -> None:
    """What the file system takes for as many bytes, through a buffer as large as a page."""
    buffer = bytearray(PAGE)
    with open(path, "rb", buffering=0) as source, tempfile.NamedTemporaryFile(dir=path.parent, buffering=0) as target:
        while length := source.readinto(buffer):
            target.write(memoryview(buffer)[:length])
        os.fsync(target.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rotation", description=__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of the file (default: 1024)")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", help="where to make the file (default: the system's temporary folder)")
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        ring = bs.Keyring(Path(folder) / "keys.json", create=True)
        for name in ("footer", "pii", "pii-2"):
            ring.create(name)
        path = Path(folder) / "large.parquet"
        write(path, given.mib << 20, bs.KeyTools(ring))
        rewrap(path, ring)
        rekey(path, bs.KeyTools(ring), given.repetitions)


if __name__ == "__main__":
    main()
