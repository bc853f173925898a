"""What a user gets wrong on the first day, and the answer that saves the hour."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

import bloomseal as bs
from bloomseal.keytools import KmsAccessError
from bloomseal.storage.places import open_source

SECRET = "s.this-is-a-token"


@pytest.fixture
def ring(tmp_path: Path) -> bs.Keyring:
    made = bs.Keyring(tmp_path / "ring.json", create=True)
    made.create("footer")
    return made


@pytest.fixture
def people(tmp_path: Path, ring: bs.Keyring) -> str:
    path = str(tmp_path / "people.parquet")
    table = pa.table({"ssn": ["1"], "name": ["Ada"], "address": [{"street": "x", "zip": "y"}]})
    bs.write_table(table, path, encryption=bs.EncryptionSpec("footer", keys=ring))
    return path


# Keys


def test_a_master_key_is_made_once(ring: bs.Keyring) -> None:
    made = ring.create("pii", exist_ok=True)
    assert ring.create("pii", exist_ok=True) == made
    with pytest.raises(bs.UsageError, match="exist_ok=True"):
        ring.create("pii")
    ring.rotate("pii")
    assert len(ring.create("pii", exist_ok=True).versions) == 2


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_path_given_for_keys_is_answered_with_the_uri(people: str, ring: bs.Keyring, as_path: Any) -> None:
    with pytest.raises(bs.UsageError) as caught:
        bs.read_table(people, decryption=bs.DecryptionSpec(as_path(ring.path)))
    assert f"keyring:{ring.path}" in str(caught.value.hint)
    assert bs.read_table(people, decryption=bs.DecryptionSpec(f"keyring:{ring.path}")).num_rows == 1
    with pytest.raises(bs.UsageError) as caught:
        bs.KeyTools("ring.json")
    assert "keyring:ring.json" in str(caught.value.hint)
    with pytest.raises(bs.UsageError) as caught:
        bs.KeyTools("keyring://ring.json")
    assert "keyring:relative" in str(caught.value.hint)


# Names


@pytest.mark.parametrize(
    ("name", "first"), [("sn", "ssn"), ("SSN", "ssn"), ("adress.zip", "address.zip"), ("q", "ssn")]
)
def test_no_such_column_lists_each_name_once_and_the_nearest_first(
    people: str, ring: bs.Keyring, name: str, first: str
) -> None:
    with pytest.raises(bs.UsageError, match="no such column") as caught:
        bs.read_table(people, columns=[name], decryption=bs.DecryptionSpec(ring))
    listed = str(caught.value.hint).removeprefix("one of ").split(", ")
    assert listed[0] == first
    assert sorted(listed) == ["address", "address.street", "address.zip", "name", "ssn"]


def test_nearest_keeps_the_order_of_what_is_not_alike() -> None:
    from bloomseal.core.spelling import nearest

    assert nearest("columm", ["b", "a", "column", "a"]) == ["column", "b", "a"]
    assert nearest("x", map(str, range(100)), most=3) == ["0", "1", "2"]
    assert nearest("x", []) == []


@pytest.mark.parametrize(
    ("kind", "given", "near"),
    [
        (bs.FilterSpec, {"fpr": 0.1}, "fpp"),
        (bs.EncryptionSpec, {"footer": "x"}, "footer_key"),
        (bs.DecryptionSpec, {"keys": None, "encrypted_column": ["a"]}, "encrypted_columns"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_options(kind: Any, given: dict[str, Any], near: str) -> None:
    with pytest.raises(bs.UsageError) as caught:
        kind(**given)
    assert str(caught.value.hint).startswith(f"one of {near}")


def test_a_filter_given_as_something_else_is_answered_with_the_options(tmp_path: Path) -> None:
    with pytest.raises(bs.UsageError) as caught:
        bs.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet", bloom_filters={"a": 0.1})  # type: ignore[dict-item]
    assert "fpp, ndv, num_bytes, hide_size, max_bytes" in str(caught.value.hint)


def test_a_misspelt_setting_of_a_policy_is_answered_with_the_settings() -> None:
    def load(table: dict[str, Any], **top: Any) -> None:
        bs.Policy.from_dict({"version": 1, "tables": {"t": {"footer_key": "f", **table}}, **top})

    for misspelt, near in [
        ({"columns": {"a": {"filter": {"fp": 0.1}}}}, "fpp"),
        ({"columns": {"a": {"sensitivty": "public"}}}, "sensitivity"),
        ({"algoritm": "AES_GCM_V1"}, "algorithm"),
    ]:
        with pytest.raises(bs.PolicyError, match="is not understood") as caught:
            load(misspelt)
        assert str(caught.value.hint).startswith(f"one of {near}")
    with pytest.raises(bs.PolicyError) as caught:
        load({}, default={})
    assert str(caught.value.hint).startswith("one of defaults")


def test_an_unknown_option_of_the_writer_is_named(tmp_path: Path) -> None:
    table, path = pa.table({"a": [1, 2]}), tmp_path / "a.parquet"
    for option, near in [
        ("compresion", "compression"),
        ("bloom_filter", "bloom_filters"),
        ("row_group_sise", "row_group_size"),
    ]:
        with pytest.raises(bs.UsageError, match=repr(option)) as caught:
            bs.write_table(table, path, **{option: "zstd"})
        assert str(caught.value.hint).startswith(f"one of {near}")
    assert not path.exists()
    bs.write_table(table, path, compression="zstd", data_page_size=1000, coerce_timestamps="ms", write_statistics=False)
    assert bs.read_table(path).equals(table)


# Files, and what storage and foreign code said


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path, ring: bs.Keyring) -> None:
    path = str(tmp_path / "gone.parquet")
    calls: list[Any] = [
        lambda: bs.open_file(path),
        lambda: bs.read_table(path),
        lambda: bs.read_table(path, filesystem=pa.fs.LocalFileSystem()),
        lambda: bs.inspect(path),
        lambda: bs.probe(path, "a", [1]),
        lambda: bs.attach_filters(path, {"a": True}),
        lambda: bs.rewrap(path, decryption=bs.DecryptionSpec(ring)),
        lambda: bs.rekey(path, decryption=bs.DecryptionSpec(ring), encryption=bs.EncryptionSpec("footer", keys=ring)),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError) as caught:
            call()
        error = caught.value
        assert isinstance(error, bs.MissingFileError)
        assert isinstance(error, bs.UsageError)
        assert isinstance(error.__cause__, OSError)
        assert (error.errno, error.filename, error.file) == (errno.ENOENT, path, path)
        assert str(error).endswith(f" the file: {os.strerror(errno.ENOENT)} (file {path})")
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(again), str(again), again.filename) == (bs.MissingFileError, str(error), path)


class Denying(pa.fs.FileSystemHandler):  # type: ignore[misc]
    """A store that lists a file and refuses to hand it out, in its own words."""

    def __getattribute__(self, name: str) -> Any:
        if name == "get_type_name":
            return lambda: "denying"
        return object.__getattribute__(self, name)

    def get_file_info(self, paths: list[str]) -> list[Any]:
        return [pa.fs.FileInfo(path, pa.fs.FileType.File, size=1000) for path in paths]

    def open_input_file(self, path: str) -> Any:  # noqa: ARG002
        raise OSError("AWS Error ACCESS_DENIED during GetObject operation")


for _name in Denying.__abstractmethods__:
    setattr(Denying, _name, getattr(Denying, _name, None))
Denying.__abstractmethods__ = frozenset()


def test_the_stores_own_message_is_kept_as_the_cause() -> None:
    store = pa.fs.PyFileSystem(Denying())
    with pytest.raises(bs.UsageError, match="__cause__") as caught:
        bs.read_table("bucket/file.parquet", filesystem=store)
    assert "ACCESS_DENIED" in str(caught.value.__cause__)
    assert "ACCESS_DENIED" not in str(caught.value)


def test_a_store_that_can_not_be_reached_is_an_error_of_ours_and_its_message_the_cause() -> None:
    store = pa.fs.S3FileSystem(
        access_key="x", secret_key="y", endpoint_override="127.0.0.1:9", scheme="http", connect_timeout=1,
        retry_strategy=pa.fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip
    for call in (bs.read_table, bs.open_file, bs.inspect):
        with pytest.raises(bs.UsageError, match="__cause__") as caught:
            call("bucket/file.parquet", filesystem=store)
        assert "AWS Error NETWORK_CONNECTION" in str(caught.value.__cause__)


def test_the_cause_of_a_failed_read_survives_every_layer(people: str, ring: bs.Keyring, monkeypatch: Any) -> None:
    opened = bs.open_file(people, decryption=bs.DecryptionSpec(ring))

    def failing(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(opened.walk.source, "_read", failing)
    monkeypatch.setattr(os, "preadv", failing, raising=False)
    with pytest.raises(bs.BloomsealError, match="can't read the file") as caught:
        opened.read()
    assert isinstance(caught.value.__cause__, OSError)
    with open_source(people) as source:
        assert source.size > 0


class Broken:
    """A client as users write them."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        raise ValueError(SECRET)

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        return {}[SECRET]  # type: ignore[no-any-return,index]


class Retriever:
    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:  # noqa: ARG002
        return int(SECRET).to_bytes(16, "big")


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(number for number, line in enumerate(lines, 1) if text in line)}"


def chain(error: BaseException | None) -> str:
    told = ""
    while error is not None:
        told, error = told + repr(error) + str(error), error.__cause__ or error.__context__
    return told


def test_the_line_of_a_users_client_that_raised_is_named_without_its_message(tmp_path: Path, people: str) -> None:
    with pytest.raises(KmsAccessError) as caught:
        bs.write_table(pa.table({"a": [1]}), tmp_path / "a", encryption=bs.EncryptionSpec("footer", keys=Broken()))
    assert f"ValueError at {line_of('raise ValueError(SECRET)')}" in str(caught.value)
    assert SECRET not in chain(caught.value)
    with pytest.raises(KmsAccessError) as caught:
        bs.read_table(people, decryption=bs.DecryptionSpec(Broken()))
    assert f"KeyError at {line_of('return {}[SECRET]')}" in str(caught.value)
    assert SECRET not in chain(caught.value)
    with pytest.raises(bs.KeyAccessError) as retrieving:
        bs.read_table(people, decryption=bs.DecryptionSpec(Retriever()))
    assert f"Retriever failed with ValueError at {line_of('return int(SECRET)')}" in str(retrieving.value)
    assert SECRET not in chain(retrieving.value)


# Type checkers


def test_type_checkers_know_the_public_names_and_refuse_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import bloomseal as bs\n"
        "import bloomseal.spark as bss\n"
        "reveal_type(bs.read_table)\n"
        "reveal_type(bs.FilterSpec(fpp=0.1).build)\n"
        "reveal_type(bs.audit.audit)\n"
        "reveal_type(bss.write)\n"
        "bs.typo\n"
        "bss.typo\n"
        "bs.FilterSpec(fpr=0.1)\n"
        "bs.read_table(3)\n"
        "rows = bs.read_table('p', policy='policy.toml', table='people', decryption=bs.Policy.load('p'))\n"
        "bs.write_table(rows, 'p', compression='zstd', policy=bs.Policy.load('p').for_table())\n"
        "bs.read_table('p', pollicy='policy.toml')\n"
        "bs.write_table(rows, 'p', bloom_filter={'ssn': True})\n"
        "bs.write_dataset(rows, 'p', compresion='zstd')\n"
        "bs.open_table('p').index('ssn', polcy='p')\n"
        "bs.open_table('p').attach(['ssn'], dryrun=True)\n"
        "reveal_type(bs.probe('p', 'ssn', [1]))\n"
    )
    source = Path(bs.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent",
         "--cache-dir", str(Path(__file__).parents[1] / ".mypy_cache" / "script"), str(script)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(source)}, timeout=500,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("script.py:") and " defined in " not in line]
    told = {int(line.split(":")[1]): line for line in lines}
    assert "columns: typing.Sequence" in told[3], done.stdout
    assert "SplitBlockBloomFilter" in told[4]
    assert "report.Report" in told[5]
    assert "WriteReport" in told[6]
    assert all("error" in told[line] and "typo" in told[line] for line in (7, 8))
    assert 'Unexpected keyword argument "fpr"' in told[9]
    assert "error" in told[10]
    assert not {11, 12} & told.keys()
    assert "FileAnswer" in told[18]
    for line, wrong in ((13, "pollicy"), (14, "bloom_filter"), (15, "compresion"), (16, "polcy"), (17, "dryrun")):
        assert f'Unexpected keyword argument "{wrong}"' in told[line], told[line]


# Notebooks

HOSTILE = "<script>alert('x')</script>\n\u202e&"


def test_reports_are_shown_in_notebooks_with_everything_escaped(tmp_path: Path) -> None:
    from bloomseal.audit import audit
    from bloomseal.rotation.outcome import FileOutcome, RotationReport, Status

    path = str(tmp_path / "<b>.parquet")
    bs.write_table(pa.table({HOSTILE: ["x"]}), path, bloom_filters={HOSTILE: True})
    ring = bs.Keyring(tmp_path / "ring.json", create=True)
    ring.create("f")
    spec, reading = bs.EncryptionSpec("f", keys=ring), bs.DecryptionSpec(ring)
    sealed = str(tmp_path / "<i>.parquet")
    reports: list[Any] = [
        bs.inspect(path),
        bs.attach_filters(path, {HOSTILE: True}),
        bs.verify(path),
        audit(path),
        bs.seal_file(path, sealed, encryption=spec),
        bs.rewrap(sealed, decryption=reading),
        RotationReport("seal", "j", files=[FileOutcome(HOSTILE, Status.FAILED, why=HOSTILE)]),
    ]
    for report in reports:
        shown = report._repr_html_()
        assert "<script" not in shown
        assert "<b>" not in shown
        assert "<i>" not in shown
        assert not any(not one.isprintable() for one in shown)
        assert f"<h4>{type(report).__name__}</h4>" in shown
    assert "&lt;script&gt;" in reports[0]._repr_html_()
    assert "\\u202e&amp;" in reports[0]._repr_html_()


def test_a_long_report_is_cut_and_says_so() -> None:
    from bloomseal.rotation.outcome import FileOutcome, RotationReport, Status

    files = [FileOutcome(f"file {number}", Status.SEALED) for number in range(80)]
    shown = RotationReport("rewrap", "j", files=files)._repr_html_()
    assert "file 49<" in shown
    assert "file 50<" not in shown
    assert "and 30 more" in shown


class Chained:
    """A retriever that raises an error of ours, with the vendor's behind it."""

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:  # noqa: ARG002
        raise bs.KeyAccessError("refused") from ValueError(SECRET)

    def check_under_footer_key(self, key_metadata: bytes, column: str) -> None:  # noqa: ARG002
        raise bs.PolicyError("not agreed on") from ValueError(SECRET)


class Agreeing(Chained):
    def __init__(self, ring: bs.Keyring, path: str) -> None:
        from bloomseal.core.storage.ref import FileRef

        self._keys = bs.KeyTools(ring).for_file(FileRef(path))

    def retrieve_key(self, key_metadata: bytes, column: str | None) -> bytes:
        return self._keys.retrieve_key(key_metadata, column).reveal()


def test_what_stands_behind_the_error_of_a_users_retriever_is_cut_off(people: str, ring: bs.Keyring) -> None:
    for keys, told in [(Chained(), "refused"), (Agreeing(ring, people), "not agreed on")]:
        with pytest.raises(bs.BloomsealError, match=told) as caught:
            bs.read_table(people, decryption=bs.DecryptionSpec(keys))
        assert SECRET not in chain(caught.value)


@pytest.mark.parametrize("columns", [5, "a", [["a"]], [None], [], object(), b"a"])
def test_columns_are_a_list_of_names(tmp_path: Path, columns: Any) -> None:
    bs.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    with bs.open_file(tmp_path / "t.parquet") as file, pytest.raises(bs.UsageError, match="a list of names"):
        file.read(columns)
    with pytest.raises(bs.UsageError, match="a list of names"):
        bs.read_table(tmp_path / "t.parquet", columns=columns)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: bs.open_table(None), "a path is a str"),  # type: ignore[arg-type]
        (lambda _: bs.read_table(5), "a path is a str"),  # type: ignore[arg-type]
        (lambda it: bs.open_table(it, partition_types={"zip": pa.string()}), "takes a pyarrow schema, not dict"),
        (lambda it: bs.open_table(it).read(threads="2"), "number of threads"),
        (lambda it: bs.write_dataset(it, "t", partition_by=None), "takes a list of columns"),
    ],
)
def test_arguments_of_another_type(people: str, call: Any, said: str) -> None:
    with pytest.raises(bs.UsageError, match=said):
        call(people)
