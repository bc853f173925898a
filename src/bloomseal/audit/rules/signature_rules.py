"""Rules about signatures: who wrote a table's files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ...keytools.signatures.envelope import SignatureFault
from ...storage.signatures import signature_of, signed_name
from .findings import Finding
from .judged import Facts, found

_RULES: Final = {
    SignatureFault.UNSIGNED: "BS317",
    SignatureFault.UNKNOWN: "BS318",
    SignatureFault.WRONG: "BS319",
}


def check_signatures(facts: Facts) -> Iterator[Finding]:
    """Files that readers refuse for want of a signature, and signatures without files."""
    for file in facts.files:
        if file.authorship is not None and file.authorship.fault in _RULES:
            yield found(_RULES[file.authorship.fault], file.authorship.why, None, file.path)
    for ref in facts.places.signatures:
        folder, name = posixpath.split(ref.path)
        target = signed_name(name)
        if target is None:
            continue
        there = signature_of(replace(ref, path=posixpath.join(folder, target[0])))
        if there is None or there.name != name:
            yield found("BS320", f"no {target[0]} with such an end lies beside it", None, ref.path)
