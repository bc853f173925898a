"""Whoever writes an ORC file that somebody reads: gigabytes out of a few bytes, a file in clear as an encrypted one."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal import orc
from bloomseal.audit import audit
from bloomseal.keytools import MasterKeys
from bloomseal.orc.protobuf import encoded
from orc.altered import with_footer
from orc.generated import write
from support.orc_bombs import BOMBS, many_footers

SPEC = bs.DecryptionSpec(MasterKeys({"pii": bytes(16)}), allow_ctr=True)
_MIB = 1 << 20
_ENCRYPTION = 10

CHILD = """
import json, resource, sys
import bloomseal as bs
from bloomseal.orc.rows import clear

path, verb, floor = sys.argv[1], sys.argv[2], int(sys.argv[3])
clear.MAX_ORC_DECODED_BYTES = floor or clear.MAX_ORC_DECODED_BYTES
import pyarrow.orc, bloomseal.read.orc.file, bloomseal.orc.rewrite.rewrite
with bs.open_file(path) as file:
    name = file.leaves.leaves[0].name

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run():
    match verb:
        case "read":
            return bs.read_table(path).nbytes
        case "scan":
            return sum(one.nbytes for one in bs.open_table(path).scan())
        case "probe":
            with bs.open_file(path) as file:
                return len(file.probe(name, [1]))
        case "verify":
            report = bs.verify(path, filters=True)
            if not report.ok:
                raise bs.FormatError(str(report.failures))
        case "attach":
            bs.attach_filters(path, {name: bs.FilterSpec()})

before = peak()
try:
    told = run() or 0
except bs.BloomsealError as error:
    told = f"{type(error).__name__}: {error}"
print(json.dumps([told, peak() - before]))
"""


def _child(path: Path, verb: str, floor: int = 0) -> tuple[str | int, int]:
    """What a process of its own got out of a file, and what it took for it."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), verb, str(floor)], capture_output=True, text=True, check=True
    )
    told, more = json.loads(done.stdout)
    return told, more


@pytest.mark.parametrize(
    ("bomb", "verb"),
    [*itertools.product(sorted(BOMBS), ("read", "scan", "verify")), ("dictionary", "attach"), ("list", "attach")],
)
def test_few_bytes_do_not_become_gigabytes(bomb: str, verb: str, tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    path.write_bytes(data := BOMBS[bomb](1 << 31))
    assert len(data) < 64 * 1024
    told, more = _child(path, verb)
    assert "bytes, where" in str(told), told
    assert more < 256 * _MIB  # nothing is allocated, but for streams: their runs take 32 MiB


@pytest.mark.parametrize("bomb", sorted(BOMBS))
def test_what_is_within_the_limit_takes_no_more_than_thrice(bomb: str, tmp_path: Path) -> None:
    """The limit counts values as they are decoded; pyarrow takes up to twice as much while it does so."""
    path, floor = tmp_path / "a.orc", 128 * _MIB
    path.write_bytes(BOMBS[bomb](floor - 8 * _MIB))
    told, more = _child(path, "read", floor)
    assert isinstance(told, int), told
    assert more < 3 * floor
    path.write_bytes(BOMBS[bomb](2 * floor))
    told, _ = _child(path, "read", floor)
    assert "bytes, where" in str(told)


def test_footers_of_stripes_are_not_all_held(tmp_path: Path) -> None:
    path = tmp_path / "a.orc"
    path.write_bytes(data := many_footers(18, 100_000))
    assert len(data) < 100 * 1024
    told, more = _child(path, "probe")
    assert told == 18
    assert more < 384 * _MIB  # 480 MiB, where all were


def _claiming(path: Path, section: bytes) -> Path:
    write(pa.table({"ssn": ["219-09-9999", "000-00-0000"], "n": [1, 2]}), path)
    with_footer(path, _ENCRYPTION, section)
    return path


EMPTY = b""
A_KEY = encoded(2, encoded(1, b"pii") + encoded(2, 0) + encoded(3, 1))
A_MASK = encoded(1, encoded(1, b"nullify") + encoded(3, b"\x02"))
VERBS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: bs.open_file(path, decryption=SPEC),
    "attach": lambda path: bs.attach_filters(path, ["n"], decryption=SPEC),
    "repair": lambda path: orc.repair_filters(path, decryption=SPEC),
    "rekey": lambda path: orc.rekey(path, decryption=SPEC),
    "read": lambda path: bs.read_table(path, columns=["ssn"], decryption=SPEC),
    "probe": lambda path: bs.probe(path, "ssn", ["219-09-9999"], decryption=SPEC),
    "verify": lambda path: bs.open_file(path, decryption=SPEC).verify(),
    "attach by table": lambda path: bs.attach_filters(path, ["n"], decryption=SPEC),
}


@pytest.mark.parametrize("section", [EMPTY, A_KEY, A_MASK, A_KEY + A_MASK], ids=["empty", "key", "mask", "both"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_section_that_encrypts_nothing_is_no_encryption(verb: str, section: bytes, tmp_path: Path) -> None:
    path = _claiming(tmp_path / "a.orc", section)
    before = path.read_bytes()
    with pytest.raises(bs.PolicyError, match=r"not encrypted|plaintext file"):
        VERBS[verb](path)
    assert path.read_bytes() == before


def test_an_audit_takes_it_for_plaintext(tmp_path: Path) -> None:
    for section in (EMPTY, A_KEY):
        path = _claiming(tmp_path / "a.orc", section)
        assert bs.inspect(path).algorithm is None
        assert not [one for one in audit(path).findings if one.rule.id.startswith("BS3")]
        assert bs.read_table(path)["n"].to_pylist() == [1, 2]  # nobody asked for encryption
