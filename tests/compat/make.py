"""Makes the folder of one version: ``python tests/compat/make.py``. A folder that is there is never made again: see
README.md.

Files of each mode, key material beside files, keyrings with and without a passphrase, policies, journals of rotations
and reports, as this version writes them; and in `signed` a table for recipients, with signers and a sealed index.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import bloomseal as bs
from bloomseal.audit import audit
from bloomseal.keytools.signatures.keys import PublicKey
from bloomseal.rotation import Rekey, Rewrap, Seal, rotate

PASSPHRASE = "kept for good"
KEYS = {"footer": b"footer-key-bytes", "ssn": b"personal-key-16b", "name": b"n" * 32}
PREFIX = "people/part-0/"
ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "ssn": [f"{i:03d}-45-6789" for i in range(12)],
        "name": pa.array([None if i % 5 == 4 else f"name {i % 3}" for i in range(12)]),
        "born": pa.array([8000 + i for i in range(12)], pa.date32()),
        "tags": pa.array([[f"t{i}", "all"] for i in range(12)]),
    }
)
FILTERS = {"id": True, "ssn": bs.FilterSpec(fpp=0.001), "name": True, "born": True, "tags.list.element": True}
COLUMNS = {"ssn": (KEYS["ssn"], "ks"), "name": (KEYS["name"], "kn")}

MODES: dict[str, dict[str, Any]] = {
    "gcm-encrypted-footer": {"column_keys": COLUMNS},
    "gcm-signed-footer": {"column_keys": COLUMNS, "plaintext_footer": True},
    "gcm-complete": {"column_keys": COLUMNS, "complete": True},
    "gcm-uniform": {},
    "gcm-prefix-stored": {"column_keys": COLUMNS, "aad_prefix": PREFIX},
    "gcm-prefix-supplied": {"column_keys": COLUMNS, "aad_prefix": PREFIX, "store_aad_prefix": False},
    "ctr-encrypted-footer": {"column_keys": COLUMNS, "algorithm": "AES_GCM_CTR_V1"},
    "ctr-uniform-signed-footer": {"plaintext_footer": True, "algorithm": "AES_GCM_CTR_V1"},
}
POLICY = """\
version = 1
kms = "keyring:keys.json"

[tables.people]
footer_key = "footer"
complete = true
aad_prefix = "{table}/{path}/"
store_aad_prefix = false

[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
filter = { fpp = 0.001 }

[tables.people.columns.name]
filter = true
"""


SIGNED = """\
version = 1
kms = "keyring:reader.json"

[keys.pii]
recipients = ["{recipient}"]

[tables.people]
root = "people"
footer_key = "pii"
complete = true
columns.ssn = {{ key = "pii", filter = true, index = true }}
signers.author = "{signer}"
"""


def explicit() -> bs.ExplicitKeys:
    """The data keys of the files in ``files``."""
    return bs.ExplicitKeys(keys_by_id={"kf": KEYS["footer"], "ks": KEYS["ssn"], "kn": KEYS["name"]})


def make(folder: Path) -> None:
    """Everything, into an empty folder."""
    (folder / "files").mkdir(parents=True)
    bs.write_table(ROWS, folder / "files" / "plaintext.parquet", bloom_filters=FILTERS, row_group_size=6)
    for mode, settings in MODES.items():
        spec = bs.EncryptionSpec(footer_key=(KEYS["footer"], "kf"), **settings)
        bs.write_table(ROWS, folder / f"files/{mode}.parquet", encryption=spec, bloom_filters=FILTERS, row_group_size=6)

    ring = bs.Keyring(folder / "keys.json", create=True)
    locked = bs.Keyring(folder / "locked.json", passphrase=PASSPHRASE, create=True)
    for one in (ring, locked):
        for name in ("footer", "pii"):
            one.create(name)
        one.rotate("pii")
        one.create("gone")
        one.disable("gone")
    (folder / "policy.toml").write_text(POLICY)

    for place, source, internal in (("inside", ring, True), ("beside", ring, False), ("locked", locked, True)):
        (folder / "tools" / place).mkdir(parents=True)
        spec = bs.EncryptionSpec("footer", {"ssn": "pii"}, keys=bs.KeyTools(source, internal=internal))
        bs.write_table(ROWS, folder / f"tools/{place}/part-0.parquet", encryption=spec, bloom_filters={"ssn": True})

    table = bs.Policy.load(folder / "policy.toml", kms=ring).for_table("people")
    bs.write_dataset(
        ROWS, folder / "people", encryption=table, bloom_filters=table.bloom_filters(), rows_per_file=6,
        file_name="part-{i}.parquet",
    )  # fmt: skip
    (folder / "journals").mkdir()
    (folder / "sealed").mkdir()
    bs.write_table(ROWS, folder / "sealed" / "part-0.parquet")
    under = table.at(folder / "sealed")
    for name, job in (("seal", Seal(under)), ("rekey", Rekey(under, under)), ("rewrap", Rewrap(under))):
        report = rotate(folder / "sealed", job, journal=folder / f"journals/{name}.jsonl")
        _kept(folder / f"reports/{name}.json", report.to_dict(), folder)
        journal = folder / f"journals/{name}.jsonl"
        journal.write_text(journal.read_text().replace(str(folder), "@FOLDER@"))
    _kept(folder / "reports/verify.json", bs.verify(folder / "people", decryption=table).to_dict(), folder)
    report = audit(folder / "people", keys=table.keys, policy=table)
    _kept(folder / "reports/audit.json", json.loads(report.to_json()), folder)
    import pyarrow.parquet as pq

    pq.write_table(report.inventory, folder / "reports" / "inventory.parquet", compression="zstd")


def make_signed(folder: Path) -> None:
    """A table whose writer can't read it, and is known; and a pair that was destroyed."""
    folder.mkdir(parents=True)
    ring, author = bs.Keyring(folder / "reader.json", create=True), bs.Keyring(folder / "author.json", create=True)
    for name in ("pii", "gone"):
        ring.create(name, kind="hpke")
    gone = bs.EncryptionSpec("gone", keys=ring)
    bs.write_table(ROWS, folder / "gone.parquet", encryption=gone)
    ring.destroy("gone")
    author.create("author", kind="ed25519")
    line = PublicKey(author.public_key("author")).line
    (folder / "policy.toml").write_text(SIGNED.format(recipient=ring.recipient("pii"), signer=line))
    os.environ["BLOOMSEAL_SIGNER"] = f"keyring:{author.path}#author"
    bs.write_dataset(ROWS, folder / "people", policy=folder / "policy.toml", file_name="part-{i}.parquet")


def _kept(path: Path, told: Any, folder: Path) -> None:
    """A report, without the place where it was made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told, indent=1, default=str).replace(str(folder), "@FOLDER@") + "\n")


if __name__ == "__main__":
    version = Path(__file__).parent / bs.__version__
    aside = version.with_name(f".{version.name}")
    wanted = [(version, make), (version / "signed", make_signed)]
    wanted = [(target, making) for target, making in wanted if not (target.exists() and any(target.iterdir()))]
    if not wanted:
        sys.exit(f"{version.name} is kept for good, and is not made again")
    for target, making in wanted:
        shutil.rmtree(aside, ignore_errors=True)
        making(aside)
        aside.rename(target)
