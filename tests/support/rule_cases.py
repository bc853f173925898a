"""For each rule a case that triggers it, and a near miss that doesn't."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import deltalake
import pyarrow as pa
import pyarrow.orc

from bloomseal import (
    DecryptionSpec,
    EncryptionSpec,
    ExplicitKeys,
    FilterSpec,
    KeyTools,
    attach_filters,
    open_table,
    seal_file,
    unseal_file,
)
from bloomseal.core.encryption import FRAME_BYTES, SecretKey
from bloomseal.core.keys.protocols import FileRef
from bloomseal.core.sbbf import SplitBlockBloomFilter
from bloomseal.core.thrift import Struct
from bloomseal.keytools.signatures.signers import Signers
from bloomseal.policy import ColumnPolicy, Sensitivity, TablePolicy
from bloomseal.policy.table import IndexPolicy
from bloomseal.write import writer
from bloomseal.write.assemble import filter_modules
from keytools.test_signers import Signing
from support.jvm import java_write, key_tools
from support.lab import (
    ROW_GROUP,
    Case,
    Lab,
    arrow_file,
    chunks,
    edit_chunks,
    edit_footer,
    edit_meta,
    flip,
    glued,
    people,
)

Pair = tuple[Case, Case]
PAIRS: dict[str, Callable[[Lab], Pair]] = {}
JAVA: dict[str, Callable[[Lab], Pair]] = {}

ID, SSN, CITY, NOTHING = 0, 1, 3, 4
CONFIDENTIAL = Sensitivity.CONFIDENTIAL
WITH_FILTER = {"bloom_filters": {"ssn": True}}


def pair(rule: str) -> Callable[[Callable[[Lab], Pair]], Callable[[Lab], Pair]]:
    def keep(make: Callable[[Lab], Pair]) -> Callable[[Lab], Pair]:
        PAIRS[rule] = make
        return make

    return keep


@pair("BS101")
def column_in_plaintext(lab: Lab) -> Pair:
    bad = lab.signed("bad.parquet", encryption={"column_keys": {"name": "pii"}})
    return lab.case(bad, policy=lab.policy()), lab.case(lab.signed(), policy=lab.policy())


@pair("BS102")
def filter_in_clear(lab: Lab) -> Pair:
    good = lab.write(**WITH_FILTER)
    bad = lab.write("bad.parquet", **WITH_FILTER)
    data = bytearray(bad.read_bytes())
    for chunk in chunks(bad, KeyTools(lab.keyring)):
        if chunk.leaf.name == "ssn":
            # As long as the two sealed modules: an unknown field fills the header up.
            start, length = chunk.meta.bloom_filter_offset, chunk.meta.bloom_filter_length
            header, bitset = filter_modules(SplitBlockBloomFilter(1024), None, lambda _: b"")
            size = length - len(header) - 2 * FRAME_BYTES
            header, bitset = filter_modules(SplitBlockBloomFilter(size), None, lambda _: b"")
            longer = Struct.parse(bytes(header))
            longer.set_binary(15, b"x" * (2 * FRAME_BYTES - 2))
            clear = longer.to_bytes() + bytes(bitset)
            assert len(clear) == length
            data[start : start + length] = clear
    bad.write_bytes(data)
    return lab.keyed(bad), lab.keyed(good)


@pair("BS103")
def filter_on_plaintext_column(lab: Lab) -> Pair:
    open_ = {"encryption": {"column_keys": {"name": "pii"}}}
    bad = lab.signed("bad.parquet", bloom_filters={"ssn": True}, **open_)
    near = lab.signed("near.parquet", bloom_filters={"city": True}, **open_)
    return lab.case(bad, policy=lab.policy()), lab.case(near, policy=lab.policy())


@pair("BS104")
def statistics_in_clear(lab: Lab) -> Pair:
    statistics = Struct()
    statistics.set_binary(5, b"999")
    statistics.set_binary(6, b"000")

    def spoil(meta: Struct) -> None:
        meta.set_struct(12, statistics)

    return lab.case(edit_meta(lab.signed("bad.parquet"), SSN, spoil)), lab.case(edit_meta(lab.signed(), ID, spoil))


@pair("BS105")
def size_statistics_in_clear(lab: Lab) -> Pair:
    bad = arrow_file(lab.folder / "arrow.parquet", plaintext_footer=True)
    return lab.case(bad), lab.case(arrow_file(lab.folder / "sealed.parquet"), lab.signed())


@pair("BS106")
def geospatial_statistics_in_clear(lab: Lab) -> Pair:
    def spoil(meta: Struct) -> None:
        meta.set_struct(17, Struct())

    return lab.case(edit_meta(lab.signed("bad.parquet"), SSN, spoil)), lab.case(edit_meta(lab.signed(), ID, spoil))


@pair("BS107")
def page_index_in_clear(lab: Lab) -> Pair:
    def spoil(chunk: Struct, all_chunks: list[Struct]) -> None:
        chunk.set_i64(6, all_chunks[ID].integer(6) or 0)
        chunk.set_i32(7, all_chunks[ID].integer(7) or 0)

    bad = edit_chunks(lab.signed("bad.parquet", write_page_index=True), SSN, spoil)
    return lab.case(bad), lab.case(lab.signed(write_page_index=True))


@pair("BS108")
def filter_place_in_clear(lab: Lab) -> Pair:
    path = lab.signed("bad.parquet", **WITH_FILTER)
    place = next(c.meta for c in chunks(path, KeyTools(lab.keyring)) if c.leaf.name == "ssn")

    def spoil(meta: Struct) -> None:
        meta.set_i64(14, place.bloom_filter_offset)
        meta.set_i32(15, place.bloom_filter_length)

    return lab.case(edit_meta(path, SSN, spoil)), lab.case(lab.signed(bloom_filters={"ssn": True, "city": True}))


@pair("BS109")
def key_values_in_clear(lab: Lab) -> Pair:
    entry = Struct()
    entry.set_binary(1, b"longest")

    def spoil(meta: Struct) -> None:
        meta.set_list(8, [entry.to_bytes()])

    return lab.case(edit_meta(lab.signed("bad.parquet"), SSN, spoil)), lab.case(edit_meta(lab.signed(), CITY, spoil))


def levels_in_clear(lab: Lab) -> Pair:
    keys = {"kf": b"0123456789012345"}

    def file(name: str, version: int) -> Case:
        path = lab.folder / name
        rows = [{"ssn": f"{i:09d}" if i % 3 else None} for i in range(100)]
        java_write(
            path, "message m { optional binary ssn (STRING); }", rows, page_version=version,
            encryption=key_tools(keys, uniform_key="kf", double_wrapping=False),
        )  # fmt: skip
        return lab.case(path, deep=True, keys=JavaKms(keys))

    return file("v2.parquet", 2), file("v1.parquet", 1)


JAVA["BS110"] = levels_in_clear


def hash_mask(lab: Lab) -> Pair:
    from .orc_java import java_orc_write, memory_keys

    rows, keys = [[number, f"{number:09d}"] for number in range(100)], memory_keys(("pii", 0, bytes(16)))
    for name, mask in (("bad", "sha256:ssn"), ("near", "nullify:ssn")):
        java_orc_write(
            lab.folder / f"{name}.orc", "struct<id:bigint,ssn:string>", rows, keys, encrypt="pii:ssn", masks=mask
        )
    return lab.case(lab.folder / "bad.orc"), lab.case(lab.folder / "near.orc")


JAVA["BS116"] = hash_mask


@pair("BS111")
def plaintext_file(lab: Lab) -> Pair:
    lab.signed("table/a.parquet")
    lab.plain("table/b.parquet")
    lab.signed("others/a.parquet")
    lab.plain("others/b.parquet", table=people().select(["id", "city"]))
    return lab.case(lab.folder / "table"), lab.case(lab.folder / "others")


@pair("BS112")
def plaintext_footer(lab: Lab) -> Pair:
    return lab.keyed(lab.signed("bad.parquet"), policy=lab.policy()), lab.keyed(lab.write(), policy=lab.policy())


@pair("BS113")
def values_in_the_table_log(lab: Lab) -> Pair:
    folder = lab.folder / "delta"
    deltalake.write_deltalake(str(folder), people())
    spec = EncryptionSpec("footer", {"ssn": "pii"}, KeyTools(lab.keyring), plaintext_footer=True)
    near = lab.folder / "near"
    deltalake.write_deltalake(
        str(near), people(), configuration={"delta.dataSkippingStatsColumns": "id"}
    )  # the statistics of no encrypted column
    for path in (*folder.glob("*.parquet"), *near.glob("*.parquet")):
        seal_file(path, encryption=spec)
    return lab.case(folder), lab.case(near)


@pair("BS118")
def bytes_that_no_module_covers(lab: Lab) -> Pair:
    hidden = lab.plain("hidden.parquet").read_bytes()
    near = lab.write("near.parquet", **WITH_FILTER)
    attach_filters(near, {"ssn": FilterSpec(fpp=0.001)}, decryption=DecryptionSpec(KeyTools(lab.keyring)))
    return lab.keyed(glued(lab.write("bad.parquet"), hidden)), lab.keyed(near, lab.write())


@pair("BS119")
def values_in_names(lab: Lab) -> Pair:
    lab.write("bad/ssn=078-05-1120/a.parquet")
    lab.write("near/day=1/a.parquet")
    return lab.keyed(lab.folder / "bad"), lab.keyed(lab.folder / "near", policy=lab.policy())


@pair("BS120")
def copy_under_another_name(lab: Lab) -> Pair:
    table = people()
    twice = table.append_column("customer_no", table["ssn"])
    other = table.append_column("customer_no", table["ssn"].take(list(range(399, -1, -1))))
    bad = lab.write("bad.parquet", twice, use_dictionary=True)
    return lab.keyed(bad, deep=True), lab.keyed(lab.write("near.parquet", other, use_dictionary=True), deep=True)


@pair("BS201")
def unreadable_file(lab: Lab) -> Pair:
    bad = lab.signed("bad.parquet")
    bad.write_bytes(bad.read_bytes()[:-9])
    near = lab.signed()
    near.write_bytes(near.read_bytes()[:4] + b"\0" * 9 + near.read_bytes()[13:])  # a damaged page
    return lab.case(bad), lab.case(near)


@pair("BS202")
def filter_not_authentic(lab: Lab) -> Pair:
    bad, near = lab.write("bad.parquet", **WITH_FILTER), lab.write(**WITH_FILTER)
    for path, wanted in ((bad, "bloom_filter_offset"), (near, "data_page_offset")):
        chunk = next(c for c in chunks(path, KeyTools(lab.keyring)) if c.leaf.name == "ssn")
        flip(path, getattr(chunk.meta, wanted) + 100)
    return lab.keyed(bad), lab.keyed(near)


@pair("BS203")
def footer_not_authentic(lab: Lab) -> Pair:
    bad = lab.write("bad.parquet")
    flip(bad, bad.stat().st_size - 20)
    return lab.keyed(bad), lab.keyed(lab.write())


@pair("BS204")
def footer_not_verifiable(lab: Lab) -> Pair:
    path = lab.signed(encryption={"footer_key": b"f" * 16, "column_keys": {"ssn": b"s" * 16}, "keys": None})
    without = lab.case(path, keys=ExplicitKeys(column_keys={"ssn": b"s" * 16}))
    return without, lab.case(path, keys=ExplicitKeys(footer_key=b"f" * 16))


@pair("BS205")
def empty_filter(lab: Lab) -> Pair:
    bad = lab.plain("bad.parquet", bloom_filters={"ssn": True})
    data = bytearray(bad.read_bytes())
    for chunk in chunks(bad):
        if (offset := chunk.meta.bloom_filter_offset) is not None:
            end = offset + chunk.meta.bloom_filter_length
            data[end - 256 : end] = bytes(256)
    bad.write_bytes(data)
    near = lab.plain("near.parquet", bloom_filters={"nothing": True})
    return lab.keyed(bad), lab.keyed(near)


@pair("BS210")
def wrong_filter(lab: Lab) -> Pair:
    """Sealed by a writer with a bug: half of the values never went into it."""
    real = FilterSpec.build
    with (
        patch.object(FilterSpec, "build", lambda spec, hashes: real(spec, hashes[::2])),
        patch.object(writer, "check_filters"),
    ):
        bad = lab.write("bad.parquet", **WITH_FILTER)
    return lab.keyed(bad, deep=True), lab.keyed(lab.write(**WITH_FILTER), deep=True)


@pair("BS206")
def broken_metadata(lab: Lab) -> Pair:
    bad = lab.write(
        "bad.parquet", encryption={"footer_key": b"f" * 16, "column_keys": {"ssn": b"s" * 16}, "keys": None}
    )
    right = lab.case(bad, keys=ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"s" * 16}))
    wrong = lab.case(bad, keys=ExplicitKeys(footer_key=b"f" * 16, column_keys={"ssn": b"x" * 16}))
    return wrong, right


@pair("BS207")
def no_file_id(lab: Lab) -> Pair:
    def spoil(meta: Struct) -> None:
        algorithm = meta.struct(8)
        assert algorithm is not None
        inner = algorithm.struct(1)
        assert inner is not None
        inner.remove(2)
        algorithm.set_struct(1, inner)
        meta.set_struct(8, algorithm)

    return lab.case(edit_footer(lab.signed("bad.parquet"), spoil)), lab.case(lab.signed())


@pair("BS208")
def broken_filter(lab: Lab) -> Pair:
    def longer(meta: Struct) -> None:
        meta.set_i32(15, (meta.integer(15) or 0) - 32)

    def unknown(meta: Struct) -> None:
        meta.remove(15)

    bad = edit_meta(lab.plain("bad.parquet", bloom_filters={"ssn": True}), SSN, longer)
    return lab.keyed(bad), lab.keyed(edit_meta(lab.plain(bloom_filters={"ssn": True}), SSN, unknown))


@pair("BS211")
def untrusted_filter(lab: Lab) -> Pair:
    rows = pa.table({"f": pa.array([1.5], pa.float32()), "d": [1.5]})
    bad, near = lab.folder / "bad.orc", lab.folder / "near.orc"
    pyarrow.orc.write_table(rows, bad, bloom_filter_columns=[1])
    pyarrow.orc.write_table(rows, near, bloom_filter_columns=[2])
    return lab.case(bad), lab.case(near)


@pair("BS301")
def old_key_version(lab: Lab) -> Pair:
    policy = lab.policy(max_key_age=timedelta(days=90), plaintext_footer=True)
    path = lab.signed()
    return lab.keyed(path, policy=policy), lab.keyed(path, policy=policy, now=datetime.now(UTC) + timedelta(days=89))


@pair("BS302")
def disabled_master_key(lab: Lab) -> Pair:
    near = lab.write("near.parquet", encryption={"column_keys": {"ssn": "other"}})
    lab.keyring.rotate("other")
    bad = lab.write("bad.parquet")
    lab.keyring.disable("pii")
    return lab.keyed(bad), lab.keyed(near)


@pair("BS303")
def unexpected_master_key(lab: Lab) -> Pair:
    path = lab.signed(encryption={"column_keys": {"ssn": "other", "name": "pii"}})
    near = lab.policy({"ssn": ColumnPolicy(key="pii", previous_keys=("other",))})
    return lab.case(path, policy=lab.policy()), lab.case(path, policy=near)


@pair("BS304")
def previous_master_key(lab: Lab) -> Pair:
    policy = lab.policy({"ssn": ColumnPolicy(key="pii", previous_keys=("other",))})
    bad = lab.signed("bad.parquet", encryption={"column_keys": {"ssn": "other", "name": "pii"}})
    return lab.case(bad, policy=policy), lab.case(lab.signed(), policy=policy)


@pair("BS305")
def shared_data_key(lab: Lab) -> Pair:
    key = KeyTools(lab.keyring).for_file(FileRef("x")).new_key("pii", "ssn", 128)
    shared = {"column_keys": {"ssn": key}}
    bad = [lab.signed(name, encryption=shared) for name in ("a.parquet", "b.parquet")]
    one = lab.signed("one.parquet", encryption=shared)
    copy = lab.folder / "copy.parquet"
    copy.write_bytes(one.read_bytes())
    return lab.keyed(*bad), lab.keyed(one, copy)


@pair("BS114")
def stray_filter(lab: Lab) -> Pair:
    stored = Path(__file__).parents[1] / "vectors" / "arrow_rs" / "encrypted-footer.parquet"
    bad = Path(shutil.copy(stored, lab.folder / "bad.parquet"))
    return lab.case(bad, deep=True), lab.case(lab.write(**WITH_FILTER), deep=True)


@pair("BS115")
def plaintext_leftover(lab: Lab) -> Pair:
    lab.signed("bad/a.parquet")
    lab.plain("bad/.a.parquet.0123abcd.bloomseal-tmp")
    lab.signed("good/a.parquet")
    shutil.copy(lab.folder / "good" / "a.parquet", lab.folder / "good" / ".a.parquet.0123abcd.bloomseal-tmp")
    return lab.case(lab.folder / "bad"), lab.case(lab.folder / "good")


@pair("BS209")
def altered_page(lab: Lab) -> Pair:
    bad = lab.write("bad.parquet")
    chunk = next(c for c in chunks(bad, KeyTools(lab.keyring)) if c.leaf.name == "ssn")
    flip(bad, chunk.meta.data_page_offset + 200)
    return lab.keyed(bad, deep=True), lab.keyed(lab.write(), deep=True)


@pair("BS306")
def repeated_nonce(lab: Lab) -> Pair:
    bad = lab.signed("bad.parquet", write_page_index=False)
    bodies = [chunk for chunk in chunks(bad, KeyTools(lab.keyring)) if chunk.leaf.name == "ssn"]
    data = bytearray(bad.read_bytes())
    (a, size), (b, other) = ((c.meta.data_page_offset, c.meta.total_compressed_size) for c in bodies)
    assert size == other
    data[b + size - 2000 : b + size] = data[a + size - 2000 : a + size]  # bodies end the chunks: rows of equal length
    first = data[a : a + size]
    header = 4 + int.from_bytes(first[:4], "little")
    data[b + header + 4 : b + header + 16] = first[header + 4 : header + 16]
    bad.write_bytes(data)
    good = lab.signed("good.parquet")
    copy = lab.folder / "copy.parquet"
    copy.write_bytes(good.read_bytes())
    return lab.case(bad, deep=True), lab.case(good, copy, deep=True)


@pair("BS307")
def invocation_limit(lab: Lab) -> Pair:
    path = lab.signed(write_page_index=True)
    few = lab.policy(seal_limit=10, plaintext_footer=True)
    return lab.case(path, policy=few), lab.case(path, policy=lab.policy(seal_limit=1000, plaintext_footer=True))


@pair("BS308")
def no_prefix(lab: Lab) -> Pair:
    policy = lab.policy(aad_prefix="{table}/{file}", plaintext_footer=True)
    near = lab.signed("good.parquet", encryption={"aad_prefix": "people/good.parquet"})
    return lab.case(lab.signed("bad.parquet"), policy=policy), lab.case(near, policy=policy)


@pair("BS309")
def wrong_prefix(lab: Lab) -> Pair:
    policy = lab.policy(aad_prefix="{table}/{file}", plaintext_footer=True)
    near = lab.signed("good.parquet", encryption={"aad_prefix": "people/good.parquet"})
    bad = lab.folder / "renamed.parquet"
    bad.write_bytes(near.read_bytes())
    return lab.case(bad, policy=policy), lab.case(near, policy=policy)


@pair("BS310")
def unauthenticated_pages(lab: Lab) -> Pair:
    bad = lab.signed("bad.parquet", encryption={"algorithm": "AES_GCM_CTR_V1"})
    return lab.case(bad, policy=lab.policy()), lab.case(lab.signed(), policy=lab.policy())


@pair("BS311")
def short_key(lab: Lab) -> Pair:
    near = lab.signed("good.parquet", encryption={"key_bits": 256})
    policy = lab.policy(key_bits=256)
    return lab.case(lab.signed("bad.parquet"), policy=policy), lab.case(near, policy=policy)


@pair("BS312")
def kms_address(lab: Lab) -> Pair:
    url = "https://kms.example.org/"
    path = lab.signed(encryption={"keys": KeyTools(lab.keyring, instance_url=url)})
    near = lab.policy(allowed_kms_urls=(url,))
    return lab.case(path, policy=lab.policy()), lab.case(path, policy=near)


def _external(lab: Lab) -> dict[str, object]:
    return {"keys": KeyTools(lab.keyring, internal=False)}


@pair("BS313")
def orphaned_material(lab: Lab) -> Pair:
    lab.signed("bad/a.parquet", encryption=_external(lab)).rename(lab.folder / "bad" / "b.parquet")
    lab.signed("good/a.parquet", encryption=_external(lab))
    return lab.case(lab.folder / "bad"), lab.case(lab.folder / "good")


@pair("BS314")
def stale_material(lab: Lab) -> Pair:
    lab.signed("bad/a.parquet", encryption=_external(lab))
    sidecar = lab.folder / "bad" / "_KEY_MATERIAL_FOR_a.parquet.json"
    older = json.loads(sidecar.read_text())
    lab.signed("good/a.parquet", encryption=_external(lab))
    fresh = (lab.folder / "good" / "_KEY_MATERIAL_FOR_a.parquet.json").read_text()
    older["columnKey9"] = json.loads(fresh)["columnKey1"]
    sidecar.write_text(json.dumps(older))
    return lab.case(lab.folder / "bad"), lab.case(lab.folder / "good")


@pair("BS315")
def missing_material(lab: Lab) -> Pair:
    lab.signed("bad/a.parquet", encryption=_external(lab))
    (lab.folder / "bad" / "_KEY_MATERIAL_FOR_a.parquet.json").unlink()
    lab.signed("good/a.parquet", encryption=_external(lab))
    return lab.case(lab.folder / "bad"), lab.case(lab.folder / "good")


def _signed(lab: Lab, name: str) -> tuple[Path, TablePolicy]:
    """A signed file in a table, and the table's policy."""
    signing, folder = Signing(), lab.folder / name
    signers = Signers({"author": signing.key.line}, "people", folder, signing)
    lab.write(f"{name}/a.parquet", encryption={"signers": signers})
    return folder, lab.policy(signers={"author": (signing.key.line,)}, root=str(folder))


def _spoilt(lab: Lab, spoil: Callable[[Path, TablePolicy], TablePolicy | None]) -> Pair:
    good, near = _signed(lab, "good")
    bad, policy = _signed(lab, "bad")
    policy = spoil(next(bad.glob("_SIGNATURE_*")), policy) or policy
    return lab.case(bad, policy=policy), lab.case(good, policy=near)


@pair("BS317")
def unsigned_file(lab: Lab) -> Pair:
    return _spoilt(lab, lambda signature, _: signature.unlink())


@pair("BS318")
def unknown_signer(lab: Lab) -> Pair:
    return _spoilt(lab, lambda _, policy: replace(policy, signers={"next": (Signing().key.line,)}))


@pair("BS319")
def wrong_signature(lab: Lab) -> Pair:
    return _spoilt(lab, lambda _, policy: replace(policy, name="others"))


@pair("BS320")
def orphaned_signature(lab: Lab) -> Pair:
    return _spoilt(lab, lambda signature, _: signature.with_name("a.parquet").unlink())


@pair("BS316")
def missed_by_rotation(lab: Lab) -> Pair:
    bad = [lab.signed("bad/a.parquet")]
    near = lab.signed("near/a.parquet")
    lab.keyring.rotate("pii")
    bad.append(lab.signed("bad/b.parquet"))
    return lab.keyed(*bad), lab.keyed(near)


@pair("BS401")
def overfull_filter(lab: Lab) -> Pair:
    bad = lab.write("bad.parquet", bloom_filters={"ssn": FilterSpec(num_bytes=32)})
    near = lab.write("good.parquet", bloom_filters={"ssn": FilterSpec(num_bytes=256)})
    return lab.keyed(bad), lab.keyed(near)


@pair("BS402")
def telling_size(lab: Lab) -> Pair:
    spec = FilterSpec(ndv=2000, hide_size=True)
    policy = lab.policy({"ssn": ColumnPolicy(key="pii", filter=spec)})
    bad = lab.write("bad.parquet", bloom_filters={"ssn": replace(spec, ndv=ROW_GROUP)})
    return lab.keyed(bad, policy=policy), lab.keyed(lab.write(bloom_filters={"ssn": spec}), policy=policy)


@pair("BS403")
def missing_filter(lab: Lab) -> Pair:
    policy = lab.policy({"ssn": ColumnPolicy(key="pii", sensitivity=CONFIDENTIAL, filter=FilterSpec())})
    return lab.keyed(lab.write("bad.parquet"), policy=policy), lab.keyed(lab.write(**WITH_FILTER), policy=policy)


def _indexed(lab: Lab, name: str, index: IndexPolicy) -> tuple[Path, TablePolicy]:
    policy = lab.policy({"ssn": ColumnPolicy(key="pii", index=index)})
    for number in range(2):
        lab.write(f"{name}/{number}.parquet", encryption={"complete": False})
    root = lab.folder / name
    assert open_table(root, decryption=policy).index("ssn").build().ok
    return root, policy


@pair("BS117")
def clear_index(lab: Lab) -> Pair:
    bad, policy = _indexed(lab, "bad", IndexPolicy())
    manifest = bad / "_bloomseal_index" / "ssn" / "manifest.parquet"
    unseal_file(manifest, manifest, decryption=policy)
    return lab.case(bad), lab.case(_indexed(lab, "good", IndexPolicy())[0])


@pair("BS404")
def index_of_deleted(lab: Lab) -> Pair:
    bad, policy = _indexed(lab, "bad", IndexPolicy(purge_days=30))
    (bad / "0.parquet").unlink()
    good, _ = _indexed(lab, "good", IndexPolicy(purge_days=30))
    return lab.keyed(bad, policy=policy), lab.keyed(good, policy=policy)


@pair("BS405")
def missing_index(lab: Lab) -> Pair:
    bad, policy = _indexed(lab, "bad", IndexPolicy())
    open_table(bad).index("ssn").drop()
    return lab.case(bad, policy=policy), lab.case(_indexed(lab, "good", IndexPolicy())[0], policy=policy)


class JavaKms:
    """The harness's KMS: AES-GCM under the master key, its name as AAD."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._keys = {name: SecretKey(key) for name, key in keys.items()}

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        from bloomseal.core.keys.wrapping import wrap_locally

        key = self._keys[master_key_identifier]
        return wrap_locally(SecretKey(key_bytes), key, master_key_identifier.encode())

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        from bloomseal.core.keys.wrapping import unwrap_locally

        return unwrap_locally(wrapped_key, self._keys[master_key_identifier], master_key_identifier.encode()).reveal()
