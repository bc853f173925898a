"""Who writes to the catalog: chooses the options and the place of a table of Spark's, and so what `spark.table`
answers; no more.

Here the data source's options are understood as in a session, without a JVM; what Spark makes of a catalog's entries is
in tests/spark/test_options_attacks.py.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import bloomseal as bs
from games.world import COLUMNS, KeyHolder, Rights, StorageWriter, World, forged_rows, rows, world

pytest.importorskip("pyspark")

from bloomseal.spark.source.files.piece import Piece
from bloomseal.spark.source.options import Defaults, SourceOptions


class CatalogWriter:
    """Holds the options of a table; `session` is the reader's, made by `enable`, and beyond his reach."""

    def __init__(self, here: World) -> None:
        table = here.policy()
        document = {
            "version": 1,
            "kms": f"keyring://{here.ring.path}",
            "tables": {
                "people": {
                    "footer_key": "footer", "complete": True, "plaintext_footer": here.signed,
                    "aad_prefix": table.aad_prefix, "store_aad_prefix": False,
                    "columns": {"ssn": {"key": "pii"}, "illness": {"key": "health"}},
                }
            },
        }  # fmt: skip
        self._session = Defaults(kms=f"keyring://{here.ring.path}", policy=bs.Policy.from_dict(document))

    def parsed(self, **options: str) -> SourceOptions:
        return SourceOptions.parse(options, self._session)

    def read(self, here: World, **options: str) -> bs.SealedFile:
        file = here.root / "tenant=a/part-0.parquet"
        told = self.parsed(path=str(here.root), **options)
        return told.open(Piece(None, str(file), file.stat().st_size, root=str(here.root)))


def test_an_honest_entry_is_read(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    with CatalogWriter(here).read(here) as file:
        assert file.read(list(COLUMNS)).equals(rows("a"))


@pytest.mark.parametrize("name", ["kms", "policy"])
def test_no_option_chooses_a_kms_or_a_policy(tmp_path: Path, name: str) -> None:
    """Both are in order, and a file that the catalog's writer has sealed himself is in the table."""
    here = world(tmp_path / "w")
    me = StorageWriter(here.root, tmp_path / "own")
    theirs = me.own_keyring()
    spec = bs.EncryptionSpec(
        "footer", {"ssn": "pii", "illness": "health"}, keys=theirs, complete=True, aad_prefix=me.prefix(),
        store_aad_prefix=False,
    )  # fmt: skip
    bs.write_table(forged_rows(), me.file(), encryption=spec)
    policy = tmp_path / "own" / "policy.toml"
    policy.write_text(
        f'version = 1\nkms = "keyring://{theirs.path}"\n[tables.people]\nfooter_key = "footer"\ncomplete = true\n'
        'aad_prefix = "{table}/{path}/"\nstore_aad_prefix = false\n'
        '[tables.people.columns]\nssn = {key = "pii"}\nillness = {key = "health"}\n'
    )
    options = {"kms": {"kms": f"keyring://{theirs.path}"}, "policy": {"policy": str(policy)}}[name]
    with pytest.raises(bs.PolicyError, match="stands against what the session was given"):
        CatalogWriter(here).read(here, **options)
    # What stands in his way: without a session's word both serve.
    loose = {"policy": {"policy": str(policy)}, "kms": {"kms": f"keyring://{theirs.path}", "policy": str(policy)}}[name]
    assert SourceOptions.parse({"path": str(here.root), **loose}, Defaults()).kms == f"keyring://{theirs.path}"


@pytest.mark.parametrize("session", [False, True], ids=["without a session's KMS", "with one"])
@pytest.mark.parametrize("uri", ["pkcs11:token=a?module-path={}", "PKCS11:token=a?module%2Dpath={}"])
def test_no_option_names_a_library_that_is_loaded(tmp_path: Path, uri: str, session: bool) -> None:
    """Loaded, it would run as the victim, on the driver and on all executors."""
    defaults = Defaults(kms="keyring:///keys.json") if session else Defaults()
    with pytest.raises(bs.PolicyError, match=r"names a library|stands against"):
        SourceOptions.parse({"path": "t", "kms": uri.format(tmp_path / "evil.so")}, defaults)
    mine = uri.format("/usr/lib/token.so")
    assert SourceOptions.parse({"path": "t", "kms": mine}, Defaults(kms=mine)).kms == mine


POLICY = """\
version = 1
{}
[tables.people]
footer_key = "footer"
{}
"""


@pytest.mark.parametrize("session", [None, "kms"], ids=["without a session's KMS", "with one, but no policy"])
@pytest.mark.parametrize(
    ("top", "table"),
    [
        ("[defaults]\naccess_log = {!r}", ""),
        ("", "access_log = {!r}"),
        ("", 'access_log = "logging:root"'),
        ("", "[tables.other]\nfooter_key = 'footer'\naccess_log = {!r}"),
        ("kms = 'pkcs11:token=a?module-path={}'", ""),
        ("kms = 'PKCS11:token=a?module%2Dpath={}'", ""),
    ],
)
def test_no_option_names_a_policy_that_does_more_than_name_keys(
    tmp_path: Path, top: str, table: str, session: str | None
) -> None:
    """Lines at the end of a file of his choice would be run, by the shell that reads it; so would a library."""
    here = world(tmp_path / "w")
    victims = tmp_path / ".bashrc"
    victims.write_text("# mine\n")
    kms = f"keyring://{here.ring.path}"
    defaults = Defaults(kms=None if session is None else kms)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(top.format(str(victims)), table.format(str(victims))))
    options = {"path": str(here.root), "policy": str(policy), "table": "people"}
    if session is not None and "pkcs11" in top.lower():
        assert SourceOptions.parse(options, defaults).kms == kms  # the policy's counts for nothing there
        return
    with pytest.raises(bs.PolicyError, match=r"access log|names a library"):
        SourceOptions.parse(options, defaults)
    assert victims.read_text() == "# mine\n"
    policy.write_text(POLICY.format(f"kms = '{kms}'", ""))
    assert SourceOptions.parse(options, defaults).kms == kms


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bloomseal.python": "/attacker"}, "has no option bloomseal.python"),
        ({"allow_ctr": "true"}, "has no option allow_ctr"),
        ({"check_keys": "false"}, "has no option check_keys"),
        ({"passphrase": "x"}, "secret"), ({"token": "x"}, "secret"), ({"key": "x"}, "no option key"),
        ({"footer_key": "MDEyMzQ1Njc4OTAxMjM0NQ=="}, "secret|no option"),
        ({"table": "no such table"}, "no such table"), ({"allow_plaintext": "perhaps"}, "true or false"),
    ],
    ids=str,
)  # fmt: skip
def test_no_option_chooses_a_program_a_key_or_ctr(tmp_path: Path, options: dict[str, str], said: str) -> None:
    here = world(tmp_path / "w")
    with pytest.raises(bs.BloomsealError, match=said):
        CatalogWriter(here).read(here, **options)


_FLAGS = ("allow_plaintext", "allow_unverified_footer")


@pytest.mark.parametrize("flags", [some for n in range(3) for some in itertools.combinations(_FLAGS, n)], ids=str)
def test_no_option_takes_the_pins_of_the_sessions_policy_away(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Together with somebody who may use the footer's key and writes to the storage."""
    here = world(tmp_path / "w")
    ally = KeyHolder(here.root, tmp_path / "own", Rights(here.ring, {"footer"}))
    options = dict.fromkeys(flags, "true")
    for signed in (False, True):
        spec = bs.EncryptionSpec(
            "footer", keys=ally.kms, aad_prefix=ally.prefix(), store_aad_prefix=False, plaintext_footer=signed
        )
        bs.write_table(forged_rows(), ally.file(), encryption=spec, bloom_filters={"ssn": True})
        with CatalogWriter(here).read(here, **options) as file:
            for use in (
                lambda file=file: file.read(["ssn"]),
                lambda file=file: file.probe("ssn", ["a00-45-6789"]),
                lambda file=file: file.read(["n"], where=[("ssn", "==", "x")]),
            ):
                with pytest.raises(bs.PolicyError):
                    use()


# Honest limits


def test_limit_he_has_plaintext_taken_where_the_policy_names_no_column(tmp_path: Path) -> None:
    here = world(tmp_path / "w")
    path = here.root / "tenant=a/part-0.parquet"
    bs.write_table(forged_rows(), path)
    me = CatalogWriter(here)
    with pytest.raises(bs.PolicyError):
        me.read(here)
    with me.read(here, allow_plaintext="true") as file:
        assert file.read(["n"])["n"].to_pylist() == [666]
        with pytest.raises(bs.PolicyError, match="plaintext"):
            file.read(["ssn"])


def test_limit_he_says_which_prefix_is_expected(tmp_path: Path) -> None:
    """And so which file opens in another's place: read by path, or by the policy alone, where that matters."""
    here = world(tmp_path / "w")
    first, second = (here.root / f"tenant={tenant}/part-0.parquet" for tenant in "ab")
    first.write_bytes(second.read_bytes())
    me = CatalogWriter(here)
    with pytest.raises(bs.IntegrityError):
        me.read(here)
    with me.read(here, aad_prefix="people/tenant=b/part-0.parquet/") as file:
        assert file.read(list(COLUMNS)).equals(rows("b"))
