"""What `import bloomseal` offers, and what it must not load."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal


def test_every_public_name_is_there() -> None:
    assert bloomseal.__all__ == sorted(set(bloomseal.__all__))
    assert all(getattr(bloomseal, name) is not None for name in bloomseal.__all__)
    assert set(bloomseal.__all__) <= set(dir(bloomseal))


PACKAGES = ["audit", "evidence", "keytools", "orc", "rotation", "spark"]
"""Those of which docs/contributing.md says that their names are public."""


def test_each_name_is_public_in_one_place() -> None:
    own = [set(importlib.import_module(f"bloomseal.{one}").__all__) for one in PACKAGES]
    assert len(bloomseal.__all__) + sum(map(len, own)) <= 94
    for name in bloomseal.__all__:
        twins = [one for one, names in zip(PACKAGES, own, strict=True) if name in names]
        for one in twins:
            assert getattr(importlib.import_module(f"bloomseal.{one}"), name) is not getattr(bloomseal, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_names_of_the_parts_are_there(package: str) -> None:
    part = importlib.import_module(f"bloomseal.{package}")
    assert part.__all__ == sorted(set(part.__all__))
    assert all(getattr(part, name) is not None for name in part.__all__)
    source = ast.parse(Path(part.__file__ or "").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(source) if isinstance(node, ast.ImportFrom) and node.level]
    assert {one.name for node in imports for one in node.names} - {"lazily"} == set(part.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(bloomseal, "no_such_name")


def test_neither_import_nor_use_loads_what_not_every_user_needs() -> None:
    script = (
        "import sys, bloomseal\n"
        "[getattr(bloomseal, name) for name in bloomseal.__all__]\n"
        "heavy = {'numba', 'pyspark', 'boto3', 'hvac', 'pkcs11', 'google.cloud', 'azure', 'rich', 'click', 'requests'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert _told(script) == "[]"


def test_the_larger_parts_are_reached_by_their_names() -> None:
    assert bloomseal.audit.__name__ == "bloomseal.audit"
    assert bloomseal.rotation.__name__ == "bloomseal.rotation"


def test_a_look_up_does_not_load_pandas(tmp_path: Path) -> None:
    """pyarrow does on the first occasion where pandas is installed, and that takes longer than a cold look-up."""
    path = str(tmp_path / "t")
    bloomseal.write_table(pa.table({"s": ["x", "y"], "i": [1, 2]}), path, bloom_filters={"s": True, "i": True})
    script = (
        "import sys, bloomseal\n"
        f"for term in (('s', '==', 'x'), ('s', 'in', ['x', 'z']), ('i', '==', 1), ('i', 'in', [1, 5])):\n"
        f"    assert bloomseal.read_table({path!r}, where=[term]).num_rows == 1\n"
        f"bloomseal.probe({path!r}, 's', ['x'])\n"
        "print('pandas' in sys.modules, 'sqlglot' in sys.modules)"
    )
    assert _told(script) == "False False"


def test_a_look_up_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Most of a cold look-up in a table with a sealed index is the time that modules take to load."""
    keys = {"footer_key": b"f" * 16, "column_keys": {"s": b"c" * 16}}
    encryption, decryption = bloomseal.EncryptionSpec(**keys), bloomseal.DecryptionSpec(bloomseal.ExplicitKeys(**keys))
    bloomseal.write_table(pa.table({"s": ["x", "y"]}), tmp_path / "0.parquet", encryption=encryption)
    bloomseal.open_table(tmp_path, decryption=decryption).index("s", encryption=encryption).build()
    script = (
        "import sys, bloomseal\n"
        f"decryption = bloomseal.DecryptionSpec(bloomseal.ExplicitKeys(**{keys!r}))\n"
        f"table = bloomseal.open_table({str(tmp_path)!r}, decryption=decryption, use_index='require')\n"
        "assert table.read(where=[('s', '==', 'z')]).num_rows == 0\n"
        "assert table.stats.files_unopened == 1\n"
        "print(*sys.modules)"
    )
    loaded = set(_told(script).split())
    own = ("format.hashes", "format.verify", "keytools.access_log", "keytools.material", "storage.logs", "index.update",
           "write")  # fmt: skip
    others = "concurrent.futures", "difflib", "html", "numba", "pyarrow.compute", "pyarrow.dataset", "sysconfig"
    assert {"pyarrow.parquet", "bloomseal.index.lookup"} <= loaded
    assert not loaded & {*others, *(f"bloomseal.{one}" for one in own)}


def test_a_class_name_means_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in Path(bloomseal.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.name)
    assert len(found) > 400
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def _told(script: str) -> str:
    """The output of a script in a process of its own."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
