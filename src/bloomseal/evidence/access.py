"""An access log in short: who used which key how often, from when to when, and what was refused."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from typing import Any, Final

from ..core.storage.local import open_regular
from ..core.storage.source import refusal

_LISTED: Final = 100


def summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a JSON-lines access log tells. It may be longer than memory; lines that are none of ours are counted.

    Raises:
        MissingFileError, UsageError: it can't be read.
    """
    digest = hashlib.sha256()
    uses: Counter[tuple[str, ...]] = Counter()
    refused: list[dict[str, Any]] = []
    lines = strange = refusals = 0
    first = last = None
    try:
        with open(open_regular(path), "rb") as file:
            for line in file:
                digest.update(line)
                lines += 1
                entry = _parsed(line)
                if entry is None:
                    strange += 1
                    continue
                first = min(first or entry["at"], entry["at"])
                last = max(last or entry["at"], entry["at"])
                key = f"{entry.get('master_key') or entry.get('key_id') or '?'}:{entry.get('version') or '?'}"
                uses[
                    f"{entry['user']}@{entry['host']}",
                    key,
                    entry.get("column") or ("(footer)" if entry.get("file") else "(not told)"),
                    entry["action"],
                    entry["outcome"],
                ] += 1
                if entry["outcome"] == "refused":
                    refusals += 1
                    if len(refused) < _LISTED:
                        refused.append(
                            {name: entry.get(name) for name in ("at", "user", "host", "file", "column", "why")}
                        )
    except OSError as error:
        raise refusal("can't read the access log", os.fspath(path), error) from error
    names = ("by", "key", "column", "action", "outcome")
    return {
        "log": os.path.basename(path),  # noqa: PTH119
        "sha256": digest.hexdigest(),
        "lines": lines,
        "not_understood": strange,
        "first": first,
        "last": last,
        "uses": [dict(zip(names, use, strict=True)) | {"times": times} for use, times in sorted(uses.items())],
        "refusals": refusals,
        "refused": refused,
    }


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    names = ("at", "user", "host", "action", "outcome")
    if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in names):
        return None
    texts = ("column", "file", "master_key", "version", "key_id", "why")
    return entry if all(entry.get(name) is None or isinstance(entry[name], str) for name in texts) else None
