"""Mutants of what stands beside the data: key material in a file and beside it, keyring, policy, journal, an
index's files; and of ORC tails. Each is used through the public interface. What is read is right, or there is
an error of ours; and what was rotated with a mutant at hand still opens.
"""

from __future__ import annotations

import atexit
import functools
import io
import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc

import bloomseal as bs
from bloomseal.core.errors import BloomsealError, BloomsealWarning
from bloomseal.core.parquet.footer import FooterKind, peek
from bloomseal.core.storage.source import Source
from bloomseal.index.folder import IndexFolder
from bloomseal.policy import Policy
from bloomseal.rotation import Rewrap, rotate
from support import mutated_text
from support.mutants import with_claims
from support.mutated_text import any_bytes

__all__ = ["BESIDE"]

ROWS = 12
POLICY = """version = 1
kms = "keyring:{ring}"
[defaults]
kek_bits = 128
algorithm = "AES_GCM_V1"
[tables.people]
footer_key = "footer"
aad_prefix = "{{table}}/{{path}}/"
previous_footer_keys = ["health"]
[tables.people.columns.ssn]
key = "pii"
sensitivity = "restricted"
filter = {{fpp = 0.01, ndv = 1000}}
[tables.people.columns.illness]
key = "health"
"""
OTHER_POLICY = """version = 1
kms = "keyring:{ring}"
[tables.people]
footer_key = "health"
plaintext_footer = true
allow_plaintext = true
aad_prefix = "other"
algorithm = "AES_GCM_CTR_V1"
complete = true
[tables.people.columns.ssn]
key = "footer"
filter = {{fpp = 0.5}}
index = true
[tables.people.columns.id]
key = "health"
"""


def _rows(number: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "ssn": [f"{number}{i:02d}-45-6789" for i in range(ROWS)],
            "illness": [f"{number}-{i % 3}" for i in range(ROWS)],
        }
    )


class _World:
    """Files under a keyring, made once; every mutant has a folder of its own."""

    def __init__(self) -> None:
        shared = Path("/dev/shm")  # noqa: S108
        self.root = Path(tempfile.mkdtemp(prefix="bloomseal-mutants-", dir=shared if shared.is_dir() else None))
        atexit.register(shutil.rmtree, self.root, ignore_errors=True)
        self.ring = self._ring("ring.json")
        self.others = self._ring("others.json")
        self.files: dict[str, bytes] = {}
        for name, ring, number in (("own", self.ring, 0), ("second", self.ring, 1), ("theirs", self.others, 0)):
            for place, internal, signed in (("in", True, False), ("signed", True, True), ("out", False, False)):
                spec = bs.EncryptionSpec(
                    "footer", {"ssn": "pii", "illness": "health"},
                    keys=bs.KeyTools(ring, internal=internal), plaintext_footer=signed,
                )  # fmt: skip
                folder = self.root / name
                folder.mkdir(exist_ok=True)
                path = folder / f"{place}.parquet"
                bs.write_table(_rows(number), path, encryption=spec, bloom_filters={"ssn": True}, row_group_size=6)
                self.files[f"{name}/{place}"] = path.read_bytes()
                if not internal:
                    self.files[f"{name}/sidecar"] = (folder / f"_KEY_MATERIAL_FOR_{path.name}.json").read_bytes()

    def _ring(self, name: str) -> bs.Keyring:
        ring = bs.Keyring(self.root / name, create=True)
        for key in ("footer", "pii", "health"):
            ring.create(key)
        return ring

    @contextmanager
    def folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            yield Path(folder)


@functools.cache
def _world() -> _World:
    return _World()


def _chance(family: str, seed: int) -> random.Random:
    return random.Random(f"{family} {seed}")  # to be repeated, not to be secret


def _ours(what: str, call: Callable[[], Any]) -> Any:
    """What it gives; None for an error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BloomsealWarning)
        try:
            return call()
        except BloomsealError as error:
            repr(error), str(error)
            return None
        except Exception as error:
            raise AssertionError(f"{what}: {error!r}") from error


def _opens(what: str, path: Path, keys: Any, number: int = 0, **options: Any) -> bool:
    """Is the file read right? False where it is refused."""
    spec = options.pop("decryption", None) or _ours(what, lambda: bs.DecryptionSpec(keys, **options))
    if spec is None:
        return False
    expected = _rows(number)
    wanted = expected["ssn"][7].as_py()
    read = _ours(what, lambda: bs.read_table(path, decryption=spec))
    found = _ours(what, lambda: bs.read_table(path, where=[("ssn", "==", wanted)], decryption=spec))
    verdicts = _ours(what, lambda: bs.probe(path, "ssn", [wanted], decryption=spec))
    report = _ours(what, lambda: bs.verify(path, decryption=spec))
    if read is not None:
        assert read.select(expected.column_names).equals(expected), f"{what}: other rows"
    if found is not None:
        assert found.select(expected.column_names).equals(expected.slice(7, 1)), f"{what}: other rows found"
    if verdicts is not None and len(verdicts) == 2:
        assert verdicts[1][0] is not bs.Verdict.ABSENT, f"{what}: a false absent"
    return read is not None and report is not None and report.ok


def _material(seed: int) -> None:
    """Key metadata of the footer, which holds its material: nothing authenticates it, but what it leads to does."""
    world, chance = _world(), _chance("material", seed)
    kind = chance.choice(("in", "signed"))
    seen = peek(Source.memory(world.files[f"own/{kind}"]))
    other = peek(Source.memory(world.files[chance.choice((f"second/{kind}", f"theirs/{kind}"))]))
    text, what = mutated_text.json_object(seen.key_metadata, other.key_metadata, chance)
    what = f"material {seed}: {kind}: {what}"
    with world.folder() as folder:
        path = folder / "t.parquet"
        path.write_bytes(with_claims(world.files[f"own/{kind}"], seen, key_metadata=text))
        assert seen.kind in (FooterKind.ENCRYPTED, FooterKind.SIGNED)
        _rewrapped(what, path, chance)


def _sidecar(seed: int) -> None:
    world, chance = _world(), _chance("sidecar", seed)
    other = chance.choice(("second", "theirs"))
    text, what = mutated_text.json_object(world.files["own/sidecar"], world.files[f"{other}/sidecar"], chance)
    with world.folder() as folder:
        path = folder / "out.parquet"
        path.write_bytes(world.files["own/out"])
        (folder / "_KEY_MATERIAL_FOR_out.parquet.json").write_bytes(text)
        _rewrapped(f"sidecar {seed}: {what}", path, chance)


def _rewrapped(what: str, path: Path, chance: random.Random) -> None:
    """Read it; and now and then wrap its keys anew, which must never lose a file."""
    keys = bs.KeyTools(_world().ring)
    opened = _opens(what, path, keys)
    if chance.random() < 0.3:
        before = {one: one.read_bytes() for one in path.parent.iterdir()}
        to = {"footer": "health", "pii": "footer"}
        spec = bs.DecryptionSpec(keys)
        report = _ours(what, lambda: bs.rewrap(path, decryption=spec, master_keys=to))
        if report is None:
            assert {one: one.read_bytes() for one in path.parent.iterdir()} == before, f"{what}: a refusal that wrote"
        assert _opens(f"{what}, rewrapped", path, keys) >= opened, f"{what}: rewrapped, it no longer opens"


def _keyring(seed: int) -> None:
    world, chance = _world(), _chance("keyring", seed)
    text, what = mutated_text.json_object(
        Path(world.ring.path).read_bytes(), Path(world.others.path).read_bytes(), chance
    )
    what = f"keyring {seed}: {what}"
    with world.folder() as folder:
        path, place = folder / "t.parquet", folder / "ring.json"
        path.write_bytes(world.files["own/in"])
        place.write_bytes(text)
        place.chmod(0o600)
        ring = _ours(what, lambda: bs.Keyring(place))
        if ring is None:
            return
        opened = _opens(what, path, bs.KeyTools(ring))
        repr(ring)
        change = chance.choice((lambda: ring.rotate("pii"), lambda: ring.create("new"), lambda: ring.disable("health")))
        if _ours(what, lambda: (change(), True)) is None:
            assert place.read_bytes() == text, f"{what}: a refusal that wrote"
        elif opened:
            ring.enable("health")
            assert _opens(f"{what}, changed", path, bs.KeyTools(bs.Keyring(place))), f"{what}: a key is lost"


def _policy(seed: int) -> None:
    world, chance = _world(), _chance("policy", seed)
    own, other = (text.format(ring=world.ring.path).encode() for text in (POLICY, OTHER_POLICY))
    text, what = mutated_text.toml(own, other, chance)
    what = f"policy {seed}: {what}"
    with world.folder() as folder:
        (folder / "policy.toml").write_bytes(text)
        lawful = folder / "lawful.toml"
        lawful.write_bytes(own)
        root = folder / "people"
        root.mkdir()
        path, made = root / "t.parquet", root / "made.parquet"
        bs.write_table(_rows(), path, encryption=Policy.load(lawful).for_table("people", root=root))
        policy = _ours(what, lambda: Policy.load(folder / "policy.toml", kms=world.ring))
        table = None if policy is None else _ours(what, lambda: policy.for_table("people", root=root))
        if table is None:
            return
        repr(policy), repr(table)
        _opens(what, path, None, decryption=table)
        if _ours(what, lambda: (bs.write_table(_rows(), made, encryption=table), True)):
            assert _opens(f"{what}, written", made, None, decryption=table), f"{what}: written, it does not open"


@functools.cache
def _journals() -> tuple[bytes, bytes]:
    """Of a run that has ended, and of one that has not."""
    world = _world()
    folder = world.root / "journals" / "t"
    folder.mkdir(parents=True)
    job = Rewrap(bs.DecryptionSpec(bs.KeyTools(world.ring)), {"pii": "health"})
    for name in ("own", "second"):
        (folder / f"{name}.parquet").write_bytes(world.files[f"{name}/in"])
    rotate(folder, job, journal=world.root / "journals" / "one")
    ended = (world.root / "journals" / "one").read_bytes()
    return ended, b"".join(ended.splitlines(keepends=True)[:3])


def _journal(seed: int) -> None:
    """The same job as a journal says that it was begun: whatever the journal says, every file opens afterwards."""
    world, chance = _world(), _chance("journal", seed)
    ended, begun = _journals()
    text, what = mutated_text.json_lines(*chance.choice(((ended, begun), (begun, ended))), chance)
    what = f"journal {seed}: {what}"
    folder, journal = world.root / "journals" / "t", world.root / "journals" / "mutant"
    for name in ("own", "second"):
        (folder / f"{name}.parquet").write_bytes(world.files[f"{name}/in"])
    journal.write_bytes(text)
    journal.chmod(0o600)
    keys = bs.KeyTools(world.ring)
    report = _ours(what, lambda: rotate(folder, Rewrap(bs.DecryptionSpec(keys), {"pii": "health"}), journal=journal))
    if report is None:
        assert journal.read_bytes().startswith(text[: text.rfind(b"\n") + 1]), f"{what}: a refusal that wrote"
    else:
        json.dumps(report.to_dict())
    for number, name in enumerate(("own", "second")):
        assert _opens(what, folder / f"{name}.parquet", keys, number), f"{what}: {name} is lost"


_KEYS: dict[str, Any] = {"footer_key": b"f" * 16, "column_keys": {"ssn": b"s" * 16, "illness": b"i" * 16}}


@functools.cache
def _indexed() -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """A table with two indexes, and the files of each; the second's are from another table under the same keys."""
    spec = bs.EncryptionSpec(**_KEYS)
    held: list[dict[str, bytes]] = []
    for name in ("indexed", "indexed-too"):
        root = _world().root / name
        root.mkdir()
        for number in range(3):
            bs.write_table(_rows(number), root / f"{number}.parquet", encryption=spec, row_group_size=6)
        table = bs.open_table(root, decryption=bs.DecryptionSpec(bs.ExplicitKeys(**_KEYS)))
        for column in ("ssn", "illness"):
            table.index(column, encryption=spec).build()
        files = sorted(one for one in (root / "_bloomseal_index").rglob("*.parquet"))
        held.append({str(one.relative_to(root)): one.read_bytes() for one in files})
    return _world().root / "indexed", held[0], held[1]


def _index(seed: int) -> None:
    """Bytes of an index's files: without the keys no row is hidden, whatever is done to them."""
    root, own, theirs = _indexed()
    chance = _chance("index", seed)
    name, other = chance.choice(list(own)), chance.choice([*own.values(), *theirs.values()])
    made, what = (other, "another file") if chance.random() < 0.15 else any_bytes(own[name], other, chance)
    (root / name).write_bytes(made)
    try:
        _looked_up(f"index {seed}: {name}: {what}", root, chance, believed=False)
    finally:
        (root / name).write_bytes(own[name])


def _manifest(seed: int) -> None:
    """What the column's key holder writes as the manifest: he may hide rows, and gets errors of ours otherwise."""
    root, own, _ = _indexed()
    chance = _chance("manifest", seed)
    place = IndexFolder(str(root), "ssn", bs.DecryptionSpec(bs.ExplicitKeys(**_KEYS)), bs.EncryptionSpec(**_KEYS))
    loaded = place.load()
    assert loaded is not None
    values = list(loaded.to_values())
    at = chance.choice((0, 0, 1, 2))
    if chance.random() < 0.1:
        values = values[:at] + values[at + 1 :]
        what = f"without value {at}"
    else:
        mutate: mutated_text.Mutate = mutated_text.json_object if at == 0 else any_bytes
        values[at], what = mutate(values[at], values[at], chance)
    manifest = next(name for name in own if name.endswith("ssn/manifest.parquet"))
    try:
        place.write("manifest.parquet", ("ssn",), pa.array(values, pa.binary()))
        _looked_up(f"manifest {seed}: value {at}: {what}", root, chance, believed=True)
    finally:
        (root / manifest).write_bytes(own[manifest])


def _looked_up(what: str, root: Path, chance: random.Random, *, believed: bool) -> None:
    spec = bs.DecryptionSpec(bs.ExplicitKeys(**_KEYS))
    number, row = chance.randrange(3), chance.randrange(ROWS)
    expected = _rows(number).slice(row, 1)
    for use_index in ("auto", "require"):
        table = _ours(what, lambda use_index=use_index: bs.open_table(root, decryption=spec, use_index=use_index))
        if table is None:
            continue
        ask = [("ssn", "==", expected["ssn"][0].as_py())]
        found = _ours(what, lambda table=table, ask=ask: table.read(where=ask))
        if found is not None and not believed:
            assert found.select(expected.column_names).equals(expected), f"{what}: {found.num_rows} rows"
        if use_index == "auto" and not believed:
            assert found is not None, f"{what}: the index is in the way of a look-up"
        index = _ours(what, lambda table=table: table.index("ssn", encryption=bs.EncryptionSpec(**_KEYS)))
        if index is not None:
            _ours(what, index.check)
            _ours(what, lambda index=index: repr(index.show()))


@functools.cache
def _orc_files() -> tuple[bytes, bytes]:
    made = []
    for rows, compression in ((40, "uncompressed"), (30, "zlib")):
        table = pa.table({"i": pa.array(range(rows), pa.int64()), "t": [f"t{i}" for i in range(rows)]})
        sink = io.BytesIO()
        pyarrow.orc.write_table(
            table, sink, bloom_filter_columns=[1, 2], row_index_stride=10_000, compression=compression
        )
        made.append(sink.getvalue())
    return made[0], made[1]


def _orc(seed: int) -> None:
    """Nothing authenticates an ORC tail, so any lawful one is believed: errors of ours, in bounded time and memory."""
    chance = _chance("orc", seed)
    first, second = _orc_files()
    end = len(first) - 1 - first[-1]
    postscript = first[end:-1]
    size = next(body for number, _, body in mutated_text._fields(postscript) if number == 1)
    start = end - mutated_text._read_varint(size, 0)[0]
    body, footer = first[:start], first[start:end]
    match kind := chance.choice(("footer", "footer", "postscript", "bytes", "all", "other")):
        case "footer":
            footer, what = mutated_text.protobuf(footer, footer, chance)
        case "postscript":
            postscript, what = mutated_text.protobuf(postscript, second[-1 - second[-1] : -1], chance)
        case "bytes":
            footer, what = any_bytes(footer, second[-len(footer) :], chance)
        case "other":
            footer, what = second[-len(footer) :], "another's"
        case _:
            body, what = any_bytes(body, second, chance)
    lengthy = chance.random() < 0.8
    if lengthy and kind != "postscript":
        fields = mutated_text._fields(postscript)
        fields = [(n, w, mutated_text._varint(len(footer)) if n == 1 else b) for n, w, b in fields]
        postscript = b"".join(map(mutated_text._field, fields))
    data = body + footer + postscript[:255] + bytes([min(len(postscript), 255)])
    what = f"orc {seed}: {kind}: {what}"

    def ask() -> None:
        with bs.open_file(data) as file:
            _ours(what, lambda: (file.schema, file.stripes, file.num_rows, repr(file)))
            for column, value in (("i", 3), ("t", "t3")):
                _ours(what, lambda column=column, value=value: file.probe(column, [value]))
            _ours(what, lambda: [repr(one) for one in file.filters])

    _ours(what, ask)


BESIDE: dict[str, Callable[[int], None]] = {
    "key material": _material,
    "sidecar": _sidecar,
    "keyring": _keyring,
    "policy": _policy,
    "journal": _journal,
    "index": _index,
    "manifest": _manifest,
    "orc tail": _orc,
}
"""Family → the mutant of this number is made and asked."""
