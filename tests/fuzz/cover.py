"""Coverage-guided fuzzing of the targets: ``make fuzz FUZZ="--seconds 600 where csv"``.

Every target runs in a process of its own, from its folder in `corpus/`; inputs that reach new code are kept in a folder
outside of the repository. An input that ends in a foreign exception, takes more than ten seconds or 2 GiB is kept
beside them, and its path is printed: put it into `corpus/`, where a test holds it from then on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--found", type=Path, default=Path(tempfile.gettempdir()) / "bloomseal-fuzz")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        _fuzz(given.one, given.found, given.seconds)
        return 0
    from fuzz.targets import TARGETS

    failed = []
    for name in given.targets or TARGETS:
        if name not in TARGETS:
            parser.error(f"no target {name}: {', '.join(TARGETS)}")
        command = [sys.executable, __file__, "--one", name, "--seconds", str(given.seconds), "--found", given.found]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr.splitlines()
        last = next((line for line in reversed(said) if "DONE" in line), "it did not come to its end")
        print(f"{name:18} {'FAILED' if done.returncode else 'ok':6} {last}", flush=True)
        if done.returncode:
            failed.append(name)
            print("\n".join(said[-30:]), flush=True)
    return 1 if failed else 0


def _fuzz(name: str, found: Path, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["bloomseal", "fuzz"]):
        from fuzz import targets

    kept, crashes, seeds = found / name, found / f"{name}-crashes", found / f"{name}-seeds"
    for folder in (kept, crashes, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    (seeds / "lawful").write_bytes(targets.seeds()[targets.TARGETS[name][0]])
    corpus = [str(folder) for folder in (kept, targets.CORPUS / name, seeds) if folder.is_dir()]
    limits = [
        f"-max_total_time={seconds}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-max_len=16384",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={crashes}/", *corpus], lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
