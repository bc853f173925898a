"""What `import bloomseal` offers, and what it must not load."""

import subprocess
import sys

import bloomseal


def test_every_public_name_is_there() -> None:
    assert bloomseal.__all__ == sorted(set(bloomseal.__all__))
    assert all(getattr(bloomseal, name) is not None for name in bloomseal.__all__)
    assert set(bloomseal.__all__) <= set(dir(bloomseal))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(bloomseal, "no_such_name")


def test_neither_import_nor_use_loads_what_not_every_user_needs() -> None:
    script = (
        "import sys, bloomseal\n"
        "[getattr(bloomseal, name) for name in bloomseal.__all__]\n"
        "heavy = {'numba', 'pyspark', 'boto3', 'hvac', 'pkcs11', 'google.cloud', 'azure', 'rich', 'click', 'requests'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_larger_parts_are_reached_by_their_names() -> None:
    assert bloomseal.audit.__name__ == "bloomseal.audit"
    assert bloomseal.rotation.__name__ == "bloomseal.rotation"
