"""A bundle signed by a KMS's key, through the command line, and checked with the public key's file alone."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bloomseal.cli.main import main
from bloomseal.core.limits import MAX_BUNDLE_BYTES
from bloomseal.evidence.bundle.archive import opened, write
from bloomseal.evidence.bundle.manifest import sealed

__all__ = ["signs_a_bundle", "unpack"]


def unpack(path: Path) -> dict[str, bytes]:
    """A bundle's members."""
    with opened(path) as members:
        return {name: member.held(MAX_BUNDLE_BYTES) for name, member in members.items()}


def signs_a_bundle(key: str, folder: Path, capsys: pytest.CaptureFixture[str], *, digest: str | None) -> None:
    """Asserts that it does.

    Args:
        key: as ``--sign`` takes it.
        digest: of ECDSA, for openssl; None for Ed25519.
    """
    bundle, public = folder / "bundle.zip", folder / "kms.pub.pem"
    write(bundle, sealed({"a.json": b"{}"}, made=datetime(2026, 1, 1, tzinfo=UTC)))
    assert main(["evidence", "sign", str(bundle), "--sign", key]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["evidence", "public-key", key]) == 0
    public.write_text(capsys.readouterr().out)
    assert main(["evidence", "verify", str(bundle), "--public-key", str(public)]) == 0
    (folder / "manifest.json").write_bytes(unpack(bundle)["manifest.json"])
    (signature,) = (data for name, data in unpack(bundle).items() if name.startswith("signatures/"))
    (folder / "signature").write_bytes(signature)
    by_hand = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", folder / "manifest.json"]
    more = ["-sigfile", folder / "signature", *(() if digest is None else ("-digest", digest))]
    assert subprocess.run([*by_hand, *more], check=False, capture_output=True).returncode == 0
    (folder / "bundle.zip").write_bytes(bundle.read_bytes().replace(b"a.json", b"b.json"))
    assert main(["evidence", "verify", str(bundle), "--public-key", str(public)]) == 1
