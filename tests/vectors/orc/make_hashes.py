"""Writes `hashes.json` by ORC's Java library, as PySpark ships it: `python tests/vectors/orc/make_hashes.py`.

Texts and the hash that Java gives them, and filters of all kinds of values with the bits that Java sets in them. The
values are made of a seed, so that a second run writes the same file.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from bloomseal.spark.runtime import java_home

PLACE = Path(__file__).with_name("hashes.json")
EDGES = (0, 1, -1, 63, 64, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf"), 0.1)


def made(jvm: Any) -> dict[str, Any]:
    """What Java says."""
    chance = random.Random(20)
    texts = [chance.randbytes(length) for length in range(41)] + [b"\x80\xff" * 40, "größe 中文 😀".encode()]
    filters = []
    for entries, fpp in ((50, 0.05), (1_000, 0.01), (5_000, 1e-6)):
        longs = [*EDGES, *(chance.randrange(-(1 << 63), 1 << 63) for _ in range(20))]
        doubles = [*FLOATS, *(chance.uniform(-1e9, 1e9) for _ in range(10))]
        for kind, values, add in (
            ("texts", [one.hex() for one in texts], lambda bloom, one: bloom.add(bytes.fromhex(one))),
            ("longs", longs, lambda bloom, one: bloom.addLong(one)),
            ("doubles", [one.hex() for one in doubles], lambda bloom, one: bloom.addDouble(float.fromhex(one))),
        ):
            bloom = jvm.org.apache.orc.util.BloomFilterUtf8(entries, fpp)
            for one in values:
                add(bloom, one)
            words = [word & (1 << 64) - 1 for word in bloom.getBitSet()]
            bits = [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]
            filters.append(
                {
                    "kind": kind, "num_hashes": bloom.getNumHashFunctions(), "num_bits": bloom.getBitSize(),
                    "values": values, "bits": bits,
                }
            )  # fmt: skip
    hashes = [[one.hex(), jvm.org.apache.orc.util.Murmur3.hash64(one)] for one in texts]
    return {"texts": hashes, "filters": filters}


def main() -> None:
    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.java_gateway import launch_gateway  # type: ignore[attr-defined]

    gateway = launch_gateway()
    try:
        PLACE.write_text(json.dumps(made(gateway.jvm), sort_keys=True) + "\n")
    finally:
        gateway.shutdown()


if __name__ == "__main__":
    main()
