"""The bare filter that parquet-java published for other implementations to read."""

from __future__ import annotations

from pathlib import Path

from bloomseal.core.sbbf import ColumnType, LogicalType, PhysicalType, SplitBlockBloomFilter

STRING = ColumnType(PhysicalType.BYTE_ARRAY, None, LogicalType("string"))
HEADER = bytes.fromhex("1580101c1c00001c1c00001c1c000000")  # numBytes 1024, BLOCK, XXHASH, UNCOMPRESSED
WORDS = ["hello", "parquet", "bloom", "filter"]


def test_parquet_javas_filter_of_four_words(parquet_test_data: Path) -> None:
    stored = (parquet_test_data / "bloom_filter.xxhash.bin").read_bytes()
    assert stored.startswith(HEADER)
    bitset = stored[len(HEADER) :]
    theirs = SplitBlockBloomFilter.from_bitset(bitset)
    assert theirs.num_bytes == 1024

    assert all(theirs.check(word, STRING) for word in WORDS)
    assert not any(theirs.check(f"{word}?", STRING) for word in WORDS)

    ours = SplitBlockBloomFilter(1024)
    for word in WORDS:
        ours.insert(word, STRING)
    assert bytes(ours.bitset) == bitset
