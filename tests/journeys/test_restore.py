"""An older copy of files, or of the index, is put back: what opens, what audit and index say; no row is missed."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

import bloomseal as bs

from .conftest import Shell, email, people


@pytest.fixture
def backed_up(sealed: Path, folder: Path, shell: Shell) -> Path:
    """Files and index, copied; since then pandas.parquet was written anew with other rows, and a file came."""
    shell("index build customers --column email POLICY")
    shutil.copytree(sealed, folder / "backup", copy_function=shutil.copy2)
    table = bs.Policy.load("policy.toml").for_table("customers", root="customers")
    bs.write_table(pl.DataFrame(people(1000, 200)), sealed / "pandas.parquet", encryption=table)
    bs.write_table(pl.DataFrame(people(2000, 200)), sealed / "today.parquet", encryption=table)
    shell("index update customers --column email POLICY")
    return sealed


def put_back(folder: Path, name: str) -> None:
    """As a restore does it: the old bytes and times, under the name that they had."""
    old, new = folder / "backup" / name, folder / "customers" / name
    if old.is_dir():
        shutil.rmtree(new)
        shutil.copytree(old, new, copy_function=shutil.copy2)
    else:
        shutil.copy2(old, new)


def ids(shell: Shell, number: int, more: str = "") -> list[int]:
    return [row["customer_id"] for row in shell.read(f"customers POLICY {more}", email(number))]


def test_an_old_file_is_read_as_it_is(backed_up: Path, folder: Path, shell: Shell) -> None:
    assert (ids(shell, 1005), ids(shell, 5)) == ([1005], [])
    put_back(folder, "pandas.parquet")
    # It was sealed for this place, and opens; the index knows that it is not the file that it has seen.
    assert (ids(shell, 5), ids(shell, 1005), ids(shell, 2005)) == ([5], [], [2005])
    shell("read customers POLICY --use-index require", "--where", email(5), code=2)
    shell("verify customers POLICY --strict --filters")
    shell("index update customers --column email POLICY")
    assert (ids(shell, 5, "--use-index require"), ids(shell, 1005, "--use-index require")) == ([5], [])
    shell("index check customers --column email POLICY")
    shell("audit customers --policy policy.toml --deep")


def test_an_old_index_hides_no_file(backed_up: Path, folder: Path, shell: Shell) -> None:
    put_back(folder, "_bloomseal_index")
    assert (ids(shell, 1005), ids(shell, 2005), ids(shell, 205), ids(shell, 5)) == ([1005], [2005], [205], [])
    shell("read customers POLICY --use-index require", "--where", email(2005), code=2)
    shell("index update customers --column email POLICY")
    assert ids(shell, 2005, "--use-index require") == [2005]
    shell("index check customers --column email POLICY")


def test_the_whole_backup_is_what_it_was(backed_up: Path, folder: Path, shell: Shell) -> None:
    shutil.rmtree(backed_up)
    shutil.copytree(folder / "backup", backed_up, copy_function=shutil.copy2)
    assert (ids(shell, 5), ids(shell, 1005), ids(shell, 2005), ids(shell, 599)) == ([5], [], [], [599])
    shell("audit customers --policy policy.toml --deep")
    # Beside the table it is a table of its own, for whoever has the keys: the prefix has no folder's name.
    assert len(shell.read("backup POLICY --table-root backup", email(5))) == 1


def test_a_file_under_another_name_or_of_a_rekeyed_table(backed_up: Path, folder: Path, shell: Shell) -> None:
    shutil.copy2(folder / "backup" / "polars.parquet", backed_up / "again.parquet")
    shell("read customers POLICY --columns plan", code=2)
    (backed_up / "again.parquet").unlink()
    shell("rekey customers POLICY")
    put_back(folder, "polars.parquet")
    assert ids(shell, 205) == [205]  # the old data key is wrapped under a version that still opens
    shell("keyring rotate --keyring keys.json pii payment footer")
    shell("rewrap customers POLICY")
    shell("keyring destroy --keyring keys.json pii --version 1 --without-evidence --yes")
    put_back(folder, "polars.parquet")
    shell("read customers POLICY", "--where", email(205), code=2)  # an error, and not "nobody"
    shell("audit customers --policy policy.toml", code=1)
