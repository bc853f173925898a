"""The bundle: one form, and whatever is altered is refused."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import bloomseal as bs
from bloomseal.cli.main import main
from bloomseal.evidence.bundle.archive import MANIFEST, Member, Spool, opened, pack, write
from bloomseal.evidence.bundle.manifest import add_signature, sealed, verify
from bloomseal.keytools.signatures.keys import FileSigner, PublicKey
from support.signing import unpack

Found = TypeVar("Found")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MEMBERS = {"index.html": b"<p>hello</p>", "rotation/one.jsonl": b"{}\n"}


def packed(members: Mapping[str, Member]) -> bytes:
    out = io.BytesIO()
    pack(out, members)
    return out.getvalue()


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """A signed bundle, and the public key."""
    private, public = key_pair(tmp_path, "officer")
    path = tmp_path / "evidence.zip"
    write(path, sealed(MEMBERS, [FileSigner(private)], made=NOW))
    return path, public


def test_the_same_members_give_the_same_bytes() -> None:
    assert packed(MEMBERS) == packed(dict(reversed(MEMBERS.items())))


def test_a_bundle_verifies(made: tuple[Path, Path]) -> None:
    found = verify(*made)
    assert found.ok, found.problems
    assert found.members == {name: len(data) for name, data in MEMBERS.items()}
    assert found.signed_by == [PublicKey(made[1]).fingerprint]
    assert found.made == "2030-01-01T00:00:00+00:00"


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    members = unpack(path)
    change(members)
    path.write_bytes(packed(members))


def with_zipfile(path: Path, change: Callable[[zipfile.ZipFile], None]) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        change(archive)


def compressed(path: Path) -> None:
    members, out = unpack(path), io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    path.write_bytes(out.getvalue())


def reordered(path: Path) -> None:
    members, out = unpack(path), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(members, reverse=True):
            archive.writestr(name, members[name])
    path.write_bytes(out.getvalue())


def bomb(path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, bytes(200 << 20))
    path.write_bytes(out.getvalue())


def many(path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(5000):
            archive.writestr(f"m{number}", b"")
    path.write_bytes(out.getvalue())


def sixty_four(path: Path, entries: int = 5000) -> None:
    """A 64-bit end record, which zipfile believes, with a long directory; the other end record tells of one member."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0)
    directory = b"".join(entry + b"%08d" % number for number in range(entries))
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(directory), 1)
    path.write_bytes(directory + end + locator + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 54, 0, 0))


def one_place(path: Path) -> None:
    """All members begin with the same local header."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("a1", "a2", "a3"):
            archive.writestr(name, bytes(1000))
        for info in archive.filelist:
            info.header_offset = 0
    path.write_bytes(out.getvalue())


ATTACKS: dict[str, Callable[[Path], object]] = {
    "altered member": lambda path: rewritten(path, lambda m: m.update({"index.html": b"<p>HELLO</p>"})),
    "missing member": lambda path: rewritten(path, lambda m: m.pop("index.html")),
    "extra member": lambda path: rewritten(path, lambda m: m.update({"more.html": b""})),
    "altered manifest": lambda path: rewritten(
        path, lambda m: m.update({MANIFEST: m[MANIFEST].replace(b"2030", b"2031")})
    ),
    "no manifest": lambda path: rewritten(path, lambda m: m.pop(MANIFEST)),
    "no signature": lambda path: rewritten(path, lambda m: m.pop(next(n for n in m if n.startswith("sig")))),
    "altered signature": lambda path: rewritten(
        path, lambda m: m.update({n: bytes(64) for n in m if n.startswith("sig")})
    ),
    "long signature": lambda path: rewritten(path, lambda m: m.update({f"signatures/{'0' * 64}.sig": bytes(65)})),
    "duplicate member": lambda path: with_zipfile(path, lambda z: z.writestr("index.html", b"other")),
    "path upwards": lambda path: with_zipfile(path, lambda z: z.writestr("../evil", b"")),
    "absolute path": lambda path: with_zipfile(path, lambda z: z.writestr("/etc/evil", b"")),
    "windows path": lambda path: with_zipfile(path, lambda z: z.writestr("a\\b", b"")),
    "folder": lambda path: with_zipfile(path, lambda z: z.writestr("rotation/", b"")),
    "name with a null": lambda path: path.write_bytes(path.read_bytes().replace(b"index.html", b"index\0html")),
    "comment": lambda path: with_zipfile(path, lambda z: setattr(z, "comment", b"read me")),
    "bytes in front": lambda path: path.write_bytes(b"#!/bin/sh\n" + path.read_bytes()),
    "bytes behind": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "another archive behind": lambda path: path.write_bytes(path.read_bytes() + packed({"index.html": b""})),
    "name of another case": lambda path: with_zipfile(path, lambda z: z.writestr("INDEX.html", b"other")),
    "64-bit form": sixty_four,
    "members in one place": one_place,
    "one bit of a member": lambda path: path.write_bytes(path.read_bytes().replace(b"<p>hello", b"<p>hellO")),
    "compressed": compressed,
    "reordered": reordered,
    "bomb": bomb,
    "many members": many,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "no archive": lambda path: path.write_bytes(b"PAR1" * 100),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_whatever_was_altered_is_refused(made: tuple[Path, Path], attack: str) -> None:
    path, public = made
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's, about a second member of one name
        ATTACKS[attack](path)
    assert path.read_bytes() != before
    found = verify(path, public)
    assert not found.ok
    assert found.problems
    assert not found.members


def test_every_byte_counts(made: tuple[Path, Path]) -> None:
    path, public = made
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert not verify(path, public).ok, position


def test_a_large_bundle_is_read_in_pieces(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "officer")
    second, _ = key_pair(tmp_path, "second")
    path = tmp_path / "large.zip"
    large = Spool([os.urandom(1 << 20)] * 48)
    write(path, sealed({**MEMBERS, "inventory.parquet": large}, [FileSigner(private)], made=NOW))
    found, most = peak_of(lambda: verify(path, public))
    assert found.ok, found.problems
    assert found.members["inventory.parquet"] == 48 << 20
    signed, more = peak_of(lambda: add_signature(path, FileSigner(second)))
    assert signed.ok
    assert max(most, more) < 12 << 20, (most, more)
    with path.open("r+b") as file:
        file.seek(30 << 20)
        byte = file.read(1)
        file.seek(30 << 20)
        file.write(bytes([byte[0] ^ 1]))
    refused, most = peak_of(lambda: verify(path, public))
    assert not refused.ok
    assert "inventory.parquet: altered" in refused.problems[0]
    assert most < 12 << 20


def test_a_file_that_came_meanwhile_stays(tmp_path: Path) -> None:
    """It was looked for at the beginning only, and then replaced, and handed on its rights."""
    path = tmp_path / "e.zip"

    def came() -> Iterator[bytes]:
        path.write_text("somebody's")
        path.chmod(0o666)
        yield b"x"

    class Late(Spool):
        def __iter__(self) -> Iterator[bytes]:
            yield from came()

    with pytest.raises(bs.BloomsealError, match="put a file of this name there"):
        write(path, {**MEMBERS, "late": Late([b"x"])})
    assert (path.read_text(), [one.name for one in tmp_path.iterdir()]) == ("somebody's", ["e.zip"])
    path.unlink()
    write(path, MEMBERS)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_long_directory_is_not_loaded(tmp_path: Path) -> None:
    _, public = key_pair(tmp_path, "officer")
    path = tmp_path / "hostile.zip"
    sixty_four(path, 60_000)
    found, most = peak_of(lambda: verify(path, public))
    assert "not a bundle" in found.problems[0]
    assert most < 2 << 20, most


def test_what_was_compared_is_what_is_believed(made: tuple[Path, Path]) -> None:
    """Somebody writes into the bundle between the comparison and the use of a member."""
    path, _ = made
    data = path.read_bytes()
    with opened(path) as members:
        path.write_bytes(data.replace(b"<p>hello", b"<p>hellO"))
        with pytest.raises(bs.FormatError, match="changed while"):
            members["index.html"].held(1000)
    path.write_bytes(data)
    with opened(path) as members, pytest.raises(bs.FormatError, match="the limit"):
        members["index.html"].held(3)


def peak_of(work: Callable[[], Found]) -> tuple[Found, int]:
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_another_key_is_refused(made: tuple[Path, Path], tmp_path: Path) -> None:
    _, other = key_pair(tmp_path, "other")
    assert "has not signed" in verify(made[0], other).problems[0]


def test_two_persons_sign(made: tuple[Path, Path], tmp_path: Path) -> None:
    first, first_public = key_pair(tmp_path, "first")
    second, second_public = key_pair(tmp_path, "second")
    path = tmp_path / "dual.zip"
    write(path, sealed(MEMBERS, [FileSigner(first)], made=NOW, required=2))
    assert "2 keys have to sign" in verify(path, first_public).problems[0]
    assert not verify(path, [first_public, first_public]).ok  # one person twice is one person
    assert add_signature(path, FileSigner(second)).signed_by == [PublicKey(second_public).fingerprint]
    assert verify(path, [first_public, second_public]).ok
    alone = verify(path, second_public)
    assert not alone.ok
    assert alone.unchecked == [PublicKey(first_public).fingerprint]


def test_of_two_who_sign_at_once_none_is_lost(made: tuple[Path, Path], tmp_path: Path) -> None:
    """The later one wrote what he had read, without the other's signature."""
    path, public = made
    (second, its), (third, _) = key_pair(tmp_path, "second"), key_pair(tmp_path, "third")

    class Slow(FileSigner):
        def sign(self, message: bytes) -> bytes:
            assert add_signature(path, FileSigner(second)).ok
            return super().sign(message)

    with pytest.raises(bs.BloomsealError, match="changed by someone else"):
        add_signature(path, Slow(third))
    assert verify(path, [public, its]).ok
    assert add_signature(path, FileSigner(third)).ok
    link = tmp_path / "link.zip"
    link.symlink_to(path)
    assert add_signature(link, FileSigner(key_pair(tmp_path, "fourth")[0])).ok
    assert link.is_symlink()


def test_nobody_signs_an_altered_bundle(made: tuple[Path, Path], tmp_path: Path) -> None:
    private, _ = key_pair(tmp_path, "second")
    path, _ = made
    ATTACKS["altered member"](path)
    before = path.read_bytes()
    with pytest.raises(bs.IntegrityError, match="altered"):
        add_signature(path, FileSigner(private))
    assert path.read_bytes() == before


def test_a_signature_that_was_made_elsewhere(made: tuple[Path, Path], tmp_path: Path) -> None:
    path, _ = made
    private, public = key_pair(tmp_path, "elsewhere")
    (tmp_path / "m.json").write_bytes(unpack(path)[MANIFEST])
    command = ["openssl", "pkeyutl", "-sign", "-inkey", private, "-rawin", "-in", tmp_path / "m.json"]
    subprocess.run([*command, "-out", tmp_path / "m.sig"], check=True)
    add = ["evidence", "sign", str(path), "--signature", str(tmp_path / "m.sig"), "--public-key"]
    before = path.read_bytes()
    assert main([*add, str(made[1])]) == 2  # another one's public key
    assert path.read_bytes() == before
    assert main([*add, str(public)]) == 0
    assert verify(path, [made[1], public]).ok
    assert main(["evidence", "sign", str(path), "--signature", str(tmp_path / "m.sig")]) == 2


def test_openssl_verifies_the_manifest(made: tuple[Path, Path], tmp_path: Path) -> None:
    path, public = made
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.startswith("signatures/"))
        (tmp_path / "m.json").write_bytes(archive.read(MANIFEST))
        (tmp_path / "m.sig").write_bytes(archive.read(name))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin"]
    command += ["-in", tmp_path / "m.json", "-sigfile", tmp_path / "m.sig"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Verified Successfully" in done.stdout, done.stderr


def test_keys_that_are_none(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "officer")
    with pytest.raises(bs.UsageError, match="private key"):
        PublicKey(private)
    public.chmod(0o600)
    with pytest.raises(bs.UsageError, match="no private"):
        FileSigner(public)
    private.chmod(0o644)
    with pytest.raises(bs.PolicyError, match=r"the signing key .* others than its owner"):
        FileSigner(private)
    with pytest.raises(bs.KeyAccessError, match="can't be read"):
        FileSigner(tmp_path / "missing.pem")


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(bs.UsageError, match="already"):
        write(path, MEMBERS)
    assert path.read_bytes() == b"PAR1"


def test_an_ecdsa_signature_has_one_form(made: tuple[Path, Path]) -> None:
    """Of any ECDSA signature somebody without the key makes another one, (r, n - s), and other DER."""
    private, order = (
        ec.generate_private_key(ec.SECP256R1()),
        int("FFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551", 16),
    )
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    class Kms:
        """One that gives whichever of the two comes."""

        def __init__(self, high: bool) -> None:
            self.high = high

        def public_key(self) -> bytes:
            return public

        def sign(self, message: bytes) -> bytes:
            r, s = decode_dss_signature(private.sign(message, ec.ECDSA(SHA256())))
            return encode_dss_signature(r, max(s, order - s) if self.high else min(s, order - s))

    for high in (True, False):
        assert add_signature(made[0], Kms(high)).ok
    whole = made[0].read_bytes()
    (name,) = (one for one in unpack(made[0]) if one.endswith(f"{PublicKey(public).fingerprint}.sig"))
    signature = unpack(made[0])[name]
    r, s = decode_dss_signature(signature)
    for other in (encode_dss_signature(r, order - s), signature + b"\0", b"", b"\0" * 64):
        made[0].write_bytes(whole)
        rewritten(made[0], lambda members, other=other: members.__setitem__(name, other))  # type: ignore[misc]
        assert not verify(made[0], public).ok
