"""A table, its honest reader, and the roles of docs/threat-model.md: each a class that holds its keys, files and
abilities, no more.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

import bloomseal as bs
from bloomseal.core.encryption import ModuleCipher, SecretKey
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError, Problem

__all__ = [
    "NOBODY",
    "TENANTS",
    "TRUTH",
    "CoTenant",
    "KeyHolder",
    "Rights",
    "StorageWriter",
    "World",
    "forged_rows",
    "rows",
    "world",
]

NOBODY = 65534
TENANTS = ("a", "b")
NAME = "part-0.parquet"
ROWS, ROW_GROUP = 12, 4
COLUMNS = ("ssn", "illness", "n")
FILTERS = {"ssn": True, "illness": True, "n": True}


def rows(tenant: str) -> pa.Table:
    """Equal lengths in every file and row group, so that modules of one kind can change places."""
    return pa.table(
        {
            "ssn": [f"{tenant}{i:02d}-45-6789" for i in range(ROWS)],
            "illness": [f"{tenant}{i:02d}-illness" for i in range(ROWS)],
            "n": pa.array([i + 100 * (tenant == "b") for i in range(ROWS)], pa.int64()),
        }
    )


TRUTH = pa.concat_tables([rows(tenant) for tenant in TENANTS])


def forged_rows() -> pa.Table:
    """What an attacker would have read instead."""
    return pa.table({"ssn": ["e00-00-0000"], "illness": ["e00-forgery"], "n": pa.array([666], pa.int64())})


@dataclass
class World:
    """The table's folder, the keyring behind everybody's rights, and the honest side's policy."""

    home: Path
    signed: bool
    internal: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.home / "people"

    @property
    def ring(self) -> bs.Keyring:
        return bs.Keyring(self.home / "keys.json")

    def policy(self, kms: Any = None, root: Path | None = None, **settings: Any) -> Any:
        """The honest side's policy, with an empty cache of keys."""
        table = {
            "footer_key": "footer",
            "plaintext_footer": self.signed,
            "complete": True,
            "partition_by": ["tenant"],
            "material": "internal" if self.internal else "external",
            "aad_prefix": "{table}/{path}/",
            "store_aad_prefix": False,
            "columns": {
                "ssn": {"key": "pii", "filter": True, "sensitivity": "restricted"},
                "illness": {"key": "health", "filter": True},
            },
            **self.settings,
            **settings,
        }
        document = {"version": 1, "tables": {"people": table}}
        found = bs.Policy.from_dict(document, kms=kms or self.ring).for_table("people")
        return found.at(root or self.root)

    def copy(self, to: Path) -> World:
        """The same, somewhere else: what one door does to the files is not seen behind the next."""
        shutil.copytree(self.home, to, symlinks=True, copy_function=_copied)
        return World(to, self.signed, self.internal, self.settings)


def _copied(old: str, new: str) -> None:
    if stat.S_ISFIFO(os.lstat(old).st_mode):
        os.mkfifo(new)
    else:
        shutil.copy2(old, new)


@cache
def _made(signed: bool, internal: bool, settings: tuple[tuple[str, Any], ...]) -> tuple[TemporaryDirectory[str], World]:
    folder = TemporaryDirectory(prefix="bloomseal-games-")
    made = World(Path(folder.name) / "world", signed, internal, dict(settings))
    made.home.mkdir()
    ring = bs.Keyring(made.home / "keys.json", create=True)
    for name in ("footer", "pii", "health"):
        ring.create(name)
    policy = made.policy()
    for tenant in TENANTS:
        path = made.root / f"tenant={tenant}" / NAME
        path.parent.mkdir(parents=True)
        bs.write_table(
            rows(tenant), path, encryption=policy, bloom_filters=FILTERS, row_group_size=ROW_GROUP,
            compression="none", use_dictionary=False, write_page_index=True, store_schema=False,
        )  # fmt: skip
    return folder, made


def world(to: Path, *, signed: bool = False, internal: bool = True, **settings: Any) -> World:
    """A fresh copy of a table of two files, three row groups each."""
    _, made = _made(signed, internal, tuple(sorted(settings.items())))
    return made.copy(to)


class Rights:
    """A KMS in which somebody may use these master keys and no others; `asked` is what was tried."""

    def __init__(self, ring: bs.Keyring, may: Collection[str]) -> None:
        self._ring, self._may = ring, frozenset(may)
        self.asked: list[str] = []

    def _check(self, master_key: str) -> None:
        self.asked.append(master_key)
        if master_key not in self._may:
            raise KmsAccessError.because(Problem.DENIED, master_key)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self._check(master_key_identifier)
        return self._ring.wrap_key(key_bytes, master_key_identifier)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self._check(master_key_identifier)
        return self._ring.unwrap_key(wrapped_key, master_key_identifier)


class StorageWriter:
    """Holds the table's folder: may read, alter, exchange, add and delete whatever is in it. Has no key.

    Args:
        root: the table's folder.
        own: a folder of the attacker's own, outside the table.
    """

    def __init__(self, root: Path, own: Path) -> None:
        self.root, self.own = root, own
        own.mkdir(parents=True, exist_ok=True)

    def file(self, tenant: str = "a") -> Path:
        return self.root / f"tenant={tenant}" / NAME

    def own_keyring(self) -> bs.Keyring:
        """Master keys of the attacker's making, under the victims' names."""
        ring = bs.Keyring(self.own / "keys.json", create=True)
        for name in ("footer", "pii", "health"):
            ring.create(name)
        return ring

    @staticmethod
    def prefix(tenant: str = "a") -> str:
        """The AAD prefix of a file: nothing about it is secret."""
        return f"people/tenant={tenant}/{NAME}/"


class KeyHolder(StorageWriter):
    """Writes to the storage, and may use some master keys.

    Args:
        kms: with those rights.
    """

    def __init__(self, root: Path, own: Path, kms: Rights) -> None:
        super().__init__(root, own)
        self.kms = kms

    def decryption(self, tenant: str = "a") -> bs.DecryptionSpec:
        """As a reader of his own: allowing everything that helps him."""
        return bs.DecryptionSpec(
            bs.KeyTools(self.kms), aad_prefix=self.prefix(tenant), allow_ctr=True, allow_unverified_footer=True
        )

    def key(self, key_metadata: bytes, column: str | None, tenant: str = "a") -> SecretKey:
        """A data key, by the rights that he has."""
        return bs.KeyTools(self.kms).for_file(FileRef(str(self.file(tenant)))).retrieve_key(key_metadata, column)

    def cipher(self, key_metadata: bytes, column: str | None) -> ModuleCipher:
        return ModuleCipher(self.key(key_metadata, column))


class CoTenant:
    """Holds a user id of his own, and nothing else."""

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, errors="replace", user=NOBODY,
            group=NOBODY, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin"}, timeout=60,
        )  # fmt: skip

    def reads(self, path: Path) -> bool:
        return self.run("head", "-c1", path).returncode == 0

    def writes(self, path: Path, text: str) -> None:
        done = self.run("sh", "-c", f"umask 0; cat > '{path}' <<'END'\n{text}\nEND")
        assert done.returncode == 0, done.stderr
