"""The verbs that storage fails under: a small table of each kind, its change, and a judge of its state afterwards."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

import bloomseal as bs
from bloomseal.policy import Policy, TablePolicy
from bloomseal.rotation import Rekey, Rewrap, Seal, Unseal, rotate
from bloomseal.rotation.job import Job
from bloomseal.storage.discovery.kinds import is_hidden
from support.rotation_tables import masters

__all__ = ["FILES", "VERBS", "Verb", "leftovers", "make"]

FILES: Final = 2
_ROWS: Final = 40
_FILTERS: Final = {"id": bs.FilterSpec(num_bytes=64)}


def rows(number: int, version: str = "old") -> pa.Table:
    """The rows of a file; no two files share one."""
    start = number * _ROWS
    return pa.table(
        {"id": range(start, start + _ROWS), "text": [f"{version}-{i}" for i in range(start, start + _ROWS)]}
    )


def ring(root: Path) -> bs.Keyring:
    return bs.Keyring(root / "keys.json")


def encryption(root: Path, external: bool = True) -> bs.EncryptionSpec:
    return bs.EncryptionSpec("k", {"id": "pii"}, keys=bs.KeyTools(ring(root), internal=not external))


def decryption(root: Path, **options: bool) -> bs.DecryptionSpec:
    return bs.DecryptionSpec(bs.KeyTools(ring(root)), **options)


def policy(root: Path) -> TablePolicy:
    said = {"version": 1, "kms": f"keyring://{root / 'keys.json'}", "tables": {"t": {"footer_key": "k"}}}
    return Policy.from_dict(said).for_table("t")


def table(root: Path) -> Path:
    return root / "table"


def name(number: int) -> str:
    return f"{number}.parquet"


def make(root: Path) -> None:
    """A keyring and a table: even files keep their key material inside, odd ones beside them."""
    keys = bs.Keyring(root / "keys.json", create=True)
    for master in ("k", "pii", "second", "pii-2"):
        keys.create(master)
    table(root).mkdir()
    for number in range(FILES):
        spec = encryption(root, external=number % 2 == 1)
        bs.write_table(rows(number), table(root) / name(number), encryption=spec, bloom_filters=_FILTERS)


def make_plain(root: Path) -> None:
    make(root)
    for path in table(root).iterdir():
        path.unlink()
    for number in range(FILES):
        bs.write_table(rows(number), table(root) / name(number))


# What is done


def write(root: Path) -> None:
    spec = encryption(root)
    bs.write_table(rows(1, "new"), table(root) / name(1), encryption=spec, bloom_filters=_FILTERS)


def append(root: Path) -> None:
    fresh = pa.concat_tables([rows(10, "new"), rows(11, "new")])
    bs.write_dataset(
        fresh, table(root), encryption=encryption(root), mode="append", rows_per_file=_ROWS, bloom_filters=_FILTERS
    )


def overwrite(root: Path) -> None:
    fresh = pa.concat_tables([rows(10, "new"), rows(11, "new")])
    bs.write_dataset(fresh, table(root), encryption=encryption(root), mode="overwrite", rows_per_file=_ROWS)


def attach(root: Path) -> None:
    for number in range(FILES):
        bs.attach_filters(
            table(root) / name(number), {"text": bs.FilterSpec(num_bytes=64)}, decryption=decryption(root)
        )


def rotated(root: Path, job: Job) -> None:
    report = rotate(table(root), job, journal=root / "journal.jsonl")
    if not report.ok:
        raise bs.BloomsealError("; ".join(str(file.why) for file in report.files))


def rewrap(root: Path) -> None:
    rotated(root, Rewrap(decryption(root), {"k": "second", "pii": "pii-2"}))


def rekey(root: Path) -> None:
    rotated(root, Rekey(decryption(root)))


def seal(root: Path) -> None:
    rotated(root, Seal(encryption(root)))


def unseal(root: Path) -> None:
    rotated(root, Unseal(decryption(root), in_place=True))


def erase(root: Path) -> None:
    """One row of the file with its material inside, and all rows of the other one."""
    opened = bs.open_table(table(root), decryption=decryption(root))
    report = opened.erase([("id", "in", [3, *range(_ROWS, 2 * _ROWS)])], journal=root / "journal.jsonl")
    if not report.ok:
        raise bs.BloomsealError("; ".join(str(file.why) for file in report.files))


def keyring(root: Path) -> None:
    ring(root).rotate("k")


# What holds afterwards


def visible(root: Path) -> list[Path]:
    found = (path for path in table(root).rglob("*.parquet") if path.is_file())
    return sorted(path for path in found if not is_hidden(posixpath.relpath(path, table(root))))


def content(root: Path, path: Path) -> pa.Table:
    """All rows of a file, every module of which opens."""
    with bs.open_file(path, decryption=decryption(root, allow_plaintext=True)) as file:
        report = file.verify()
        assert report.ok, (path, [str(one) for one in report.failures])
        assert not report.inaccessible, path
        found = file.read()
        for column in ("id", "text"):
            if file.filter(0, column) is not None:
                verdicts = file.probe(column, found[column])
                assert all(one is bs.Verdict.MAYBE_PRESENT for one in verdicts[0]), (path, column)
        return found


def leftovers(root: Path) -> list[str]:
    """Files that nobody needs: temporary ones, key material without its file."""
    names = []
    for path in root.rglob("*"):
        material = path.name.startswith("_KEY_MATERIAL_FOR_")
        of = path.with_name(path.name.removeprefix("_KEY_MATERIAL_FOR_").removesuffix(".json"))
        if path.name.endswith("bloomseal-tmp") or (material and not of.exists()):
            names.append(str(path.relative_to(root)))
    return sorted(names)


def state(root: Path) -> str:
    """``old``, ``new`` or ``between``: each file as a whole is one of the two, and no row is lost or there twice."""
    versions = {}
    for path in visible(root):
        number, found = path.stem, content(root, path)
        index = int(number) if number.isdigit() else int(found["id"][0].as_py()) // _ROWS
        [version] = [version for version in ("old", "new") if found.equals(rows(index, version))]
        assert index not in versions, "rows are there twice"
        versions[index] = version
    ring(root).list()
    old = {index for index, version in versions.items() if version == "old"}
    new = {index for index, version in versions.items() if version == "new"}
    assert old >= set(range(FILES)) - new or new >= {10, 11}, f"rows are lost: {versions}"
    return "old" if not new else "new" if not old else "between"


def kind(root: Path) -> str:
    """Of the table whose rows stay: are the files encrypted?"""
    assert state(root) == "old"
    assert len(visible(root)) == FILES
    encrypted = {path.read_bytes().endswith(b"PARE") for path in visible(root)}
    return {True: "encrypted", False: "plain"}[encrypted.pop()] if len(encrypted) == 1 else "between"


def wrapped(root: Path) -> str:
    assert kind(root) == "encrypted"
    named = [masters(path, decryption(root)) for path in visible(root)]
    return "new" if all(one == {"second", "pii-2"} for one in named) else "old"


def erased(root: Path) -> str:
    """Each file has all of its rows, or all but those that go; nobody else's is lost."""
    old = rows(0)
    found = {path.stem: content(root, path) for path in visible(root)}
    first = found.pop("0")
    assert first.equals(old) or first.equals(pa.concat_tables([old.slice(0, 3), old.slice(4)]))
    assert all(name == "1" and table.equals(rows(1)) for name, table in found.items())
    return {(True, True): "old", (False, False): "new"}.get((first.num_rows == _ROWS, bool(found)), "between")


def filtered(root: Path) -> str:
    assert kind(root) == "encrypted"
    has = set()
    for path in visible(root):
        with bs.open_file(path, decryption=decryption(root)) as file:
            has.add(file.filter(0, "text") is not None)
    return {True: "new", False: "old"}[has.pop()] if len(has) == 1 else "between"


def versions(root: Path) -> str:
    assert kind(root) == "encrypted"
    [key] = [one for one in ring(root).list() if one.name == "k"]
    return "old" if len(key.versions) == 1 else "new"


@dataclass(frozen=True)
class Verb:
    """Something that changes a table.

    Attributes:
        run: the change.
        judge: the state of the table; raises where anything is lost or can't be opened.
        done: what the judge says when all is done.
        prepare: the table before.
    """

    run: Callable[[Path], None]
    judge: Callable[[Path], str]
    done: str
    prepare: Callable[[Path], None] = make


VERBS: Final = {
    "write": Verb(write, state, "between"),
    "append": Verb(append, state, "between"),
    "overwrite": Verb(overwrite, state, "new"),
    "attach": Verb(attach, filtered, "new"),
    "rewrap": Verb(rewrap, wrapped, "new"),
    "rekey": Verb(rekey, kind, "encrypted"),
    "seal": Verb(seal, kind, "encrypted", make_plain),
    "unseal": Verb(unseal, kind, "plain"),
    "erase": Verb(erase, erased, "new"),
    "keyring": Verb(keyring, versions, "new"),
}
