"""One write at a time to a table through Spark's own writer.

Of two overwrites at the same time each would remove what was there when it ended, and might leave the other's rows; by
an overwrite of a session without our commit protocol a write loses what it has under way. In turns both end well.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Iterator

from ..jar import cache_folder
from ..listing import split_uri


@contextlib.contextmanager
def in_turn(path: str) -> Iterator[None]:
    """Wait until no other write by this user on this machine is under way to the table at this path or URI.

    The lock lies in the user's cache, not in the table's folder: that one Spark removes when it overwrites it, and
    object stores have no locks.
    """
    base, inside = split_uri(path)
    place = f"{base or ''}\n{os.path.realpath(inside) if base is None else inside.rstrip('/')}"
    name = f"write-{hashlib.sha256(place.encode()).hexdigest()}"
    with cache_folder() as folder, folder.locked(name, patience=math.inf):
        yield
