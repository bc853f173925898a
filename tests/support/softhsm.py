"""A SoftHSM2 token for tests, made from nothing. As root on Debian or Ubuntu, `python tests/support/softhsm.py`
installs the library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["PIN", "TOKEN", "module_path", "new_token"]

TOKEN = "bloomseal tests"
PIN = "1234"
_SO_PIN = "5678"
_PLACES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm.so",
    "/usr/local/lib/softhsm/libsofthsm2.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
)


def module_path() -> str | None:
    """The library, or None where SoftHSM2 is not installed."""
    named = os.environ.get("SOFTHSM2_MODULE")
    return next((place for place in ([named] if named else _PLACES) if Path(place).exists()), None)


def new_token(folder: Path) -> str:
    """Makes an empty token in `folder`, points SoftHSM at it for this process, and returns the library's path.

    SoftHSM reads its configuration when the library is first used in a process, so one process has one folder.
    """
    module, tool = module_path(), shutil.which("softhsm2-util")
    if module is None or tool is None:
        raise FileNotFoundError("SoftHSM2 is not installed (apt-get install softhsm2)")
    tokens = folder / "tokens"
    tokens.mkdir()
    configuration = folder / "softhsm2.conf"
    configuration.write_text(f"directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n")
    os.environ["SOFTHSM2_CONF"] = str(configuration)
    pins = ["--pin", PIN, "--so-pin", _SO_PIN]
    subprocess.run([tool, "--init-token", "--free", "--label", TOKEN, *pins], check=True, capture_output=True)
    return module


if __name__ == "__main__":
    if module_path() is None:
        subprocess.run(["apt-get", "update", "-q"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-q", "softhsm2"], check=True)
    sys.stdout.write(f"{module_path()}\n")
