"""Public keys as one line of text: a prefix, and base64url of what it holds and a checksum. So a policy names them, and
a line that was mistyped or cut off is noticed.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

_CHECKSUM: Final = 6
_LONGEST: Final = 2048


def as_line(prefix: str, payload: bytes) -> str:
    """The one line that holds these bytes."""
    checksum = hashlib.sha256(prefix.encode() + payload).digest()[:_CHECKSUM]
    return prefix + base64.urlsafe_b64encode(payload + checksum).decode().rstrip("=")


def from_line(prefix: str, line: str) -> bytes | None:
    """What a line holds; None where it is no such line. No other text stands for the same bytes."""
    if not isinstance(line, str) or not line.startswith(prefix) or len(line) > _LONGEST:
        return None
    body = line.removeprefix(prefix)
    try:
        payload = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)[:-_CHECKSUM]
    except ValueError:
        return None
    return payload if as_line(prefix, payload) == line else None
