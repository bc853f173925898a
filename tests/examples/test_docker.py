"""The image, as far as it shows without Docker: what its file says, and that each `docker run` of the guide works."""

from __future__ import annotations

import re
import secrets
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import bloomseal as bs
from bloomseal.cli.main import main

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "examples" / "docker" / "Dockerfile"
GUIDE = ROOT / "docs" / "docker.md"


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line and line[0] != "#"]  # type: ignore[misc]


def test_the_image_is_pinned_and_runs_as_nobody_in_particular(instructions: list[tuple[str, str]]) -> None:
    said = [word for word, _ in instructions]
    assert said.count("USER") == 1
    assert said.index("USER") > max(index for index, word in enumerate(said) if word in ("RUN", "COPY"))
    assert ("USER", "10001") in instructions
    assert all(re.fullmatch(r"\S+:[\w.-]*\d\S*( AS \w+)?", base) for word, base in instructions if word == "FROM")
    assert ("ENTRYPOINT", '["bloomseal"]') in instructions
    for word, rest in instructions:
        assert word != "ADD"
        assert not (word in ("ENV", "ARG") and re.search(r"KEY|PASS|TOKEN|SECRET", rest))
        if "pip install" in rest:
            assert "--no-cache-dir" in rest
            assert "--require-hashes" in rest or "--no-deps" in rest


def test_what_it_copies_is_there_and_holds_all_that_the_build_needs(instructions: list[tuple[str, str]]) -> None:
    copied = [
        one for word, rest in instructions if word == "COPY" and "--from" not in rest for one in rest.split()[:-1]
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {"pyproject.toml", "README.md", "LICENSE", "src"} <= set(copied)  # those of test_supply_chain's wheel
    assert not {".", "keys"} & set(copied)


def runs() -> list[list[str]]:
    text = GUIDE.read_text(encoding="utf-8").replace("\\\n", " ")
    return [shlex.split(line) for line in text.splitlines() if line.startswith("docker run")]


def run(words: list[str], folder: Path, patch: pytest.MonkeyPatch, **environment: str) -> int:
    """The command behind the image's name, with the folders of `-v` in their place, and no home."""
    mounts = dict(re.findall(r"\$PWD/([\w.]+):(/[\w./]+?)(?::ro)?(?: |$)", " ".join(words)))
    passed = dict(re.findall(r"-e (\w+)=?(/state)?(?: |$)", " ".join(words)))
    arguments = words[words.index("bloomseal") + 1 :]
    for here, there in mounts.items():
        arguments = [one.replace(there, str(folder / here)) for one in arguments]
    with patch.context() as inside:
        inside.chdir(folder / "lake")
        for name in ("HOME", "XDG_STATE_HOME", "DATA_KEY"):
            inside.delenv(name, raising=False)
        for name, state in passed.items():
            if state or name in environment:
                inside.setenv(name, str(folder / "state") if state else environment[name])
        return main(arguments)


def test_each_run_of_the_guide_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = bs.Keyring(tmp_path / "keys.json", create=True)
    for name in ("footer", "pii"):
        ring.create(name)
    for folder in ("lake/customers", "state"):
        (tmp_path / folder).mkdir(parents=True)
    encryption = bs.EncryptionSpec(footer_key="footer", column_keys={"ssn": "pii"}, keys=ring)
    bs.write_table(pa.table({"ssn": ["078-05-1120"]}), tmp_path / "lake/customers/a.parquet", encryption=encryption)
    (tmp_path / "lake/people.csv").write_text("name\nAda\n", encoding="utf-8")
    look_up, write, rotate = runs()
    assert run(look_up, tmp_path, monkeypatch) == 0
    assert "078-05-1120" in capsys.readouterr().out
    assert run(write, tmp_path, monkeypatch) == 2  # without the key
    for words in (write, rotate):
        assert run(words, tmp_path, monkeypatch, DATA_KEY=secrets.token_hex(16)) == 0
    assert list((tmp_path / "state").rglob("*.jsonl"))
    assert bs.inspect(tmp_path / "lake/people.parquet").footer == "encrypted"
