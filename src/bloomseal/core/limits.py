"""Every ceiling on untrusted input, with its source. Lengths are held against these before any allocation."""

from __future__ import annotations

from typing import Final

MAX_ORDINAL: Final = 32767
"""Row group, column and page ordinals are int16 in the module AAD (Parquet encryption, section 4.4.2)."""

MAX_BITSET_BYTES: Final = 128 * 1024 * 1024
"""parquet-java's upper bound for a Bloom filter (BlockSplitBloomFilter.UPPER_BOUND_BYTES)."""

MIN_BITSET_BYTES: Final = 32
"""One block (Parquet Bloom filter specification: z is at least one)."""

MAX_BLOOM_HEADER_BYTES: Final = 4096
"""A Bloom filter header is some 16 bytes; parquet-java pads its plaintext to 100."""

MAX_FOOTER_BYTES: Final = 1 << 30
"""Above this a footer is refused; 1,000 columns × 50 row groups take 6 MB."""

MAX_MODULE_BYTES: Final = (1 << 31) - 1
"""PageHeader sizes are i32; a framed module's length is written as u32 but held in a Java int by every peer."""

MAX_PAGE_HEADER_BYTES: Final = 16 * 1024 * 1024
"""Page headers carry statistics of their values; Arrow C++ stops at the same size (kDefaultMaxPageHeaderSize)."""

MAX_INFLATED_PAGE_BYTES: Final = 64 * 1024 * 1024
"""A page is searched or hashed without a decoder only where it claims no more than this uncompressed; pages are 1 MiB
by default.
"""

MAX_DECODED_BYTES: Final = 1 << 30
MAX_DECODED_TIMES: Final = 8
"""What a decoder may make of the pages that it is given together: a gibibyte, and so many times their bytes without
compression. A million rows of 50 columns with one text of 16 bytes each, stored in some kilobytes, fit.
"""

MAX_LIST_ELEMENTS: Final = 1 << 17
"""Structs in a Thrift list that we take apart ourselves. An element can be one byte in the file and hundreds in memory;
32,768 leaf columns inside lists make some 98,000 schema elements."""

MAX_SCHEMA_DEPTH: Final = 60
"""The thrift library refuses structs nested deeper than 64; schemas deeper than this are not seen in practice."""

MAX_GCM_SEALS: Final = 1 << 32
"""NIST SP 800-38D section 8.3: at most 2^32 invocations per key with random 96-bit nonces."""

MAX_KEY_METADATA_BYTES: Final = 64 * 1024
"""Key metadata is an id or a short JSON text (key tools)."""

MAX_LOG_BYTES: Final = 1 << 30
"""A commit of a Delta log, an Iceberg table's metadata, or a note of Spark's file sink: some million files of 1 KB."""

SMALL_LOG_BYTES: Final = 4 * 1024 * 1024
CHECKPOINT_RATIO: Final = 128
MANIFEST_RATIO: Final = 16
"""What a log's file decodes to: the first, and that many times the bytes that it has. Checkpoints with equal statistics
for every file come to 45 times, and decode to columns; manifests and metadata to 2 to 12 times, and to Python objects
that take some 40 times more."""

MAX_ROWS_WITH_DELETES: Final = 1 << 29
"""Rows of a file of which a table deletes single ones: a bit for each, 64 MiB."""

MAX_DELETE_RECORDS: Final = 1 << 24
"""Rows of the position and equality delete files that one open table holds: 128 MiB as 64-bit numbers. Deletion vectors
are not among them."""

MAX_POLICY_BYTES: Final = 16 * 1024 * 1024
"""A policy file; 10,000 columns take 1 MB."""

MAX_BUNDLE_BYTES: Final = 1 << 30
"""An evidence bundle; that of 100,000 files with 20 columns takes some 100 MB. Its reader reads it in pieces."""

MAX_BUNDLE_MEMBERS: Final = 4096
"""Members of an evidence bundle: some twenty, and one for each journal."""

MAX_SIGNATURE_FILE_BYTES: Final = 64 * 1024
"""An envelope beside a file: one signature over a statement of some 300 bytes takes 700."""

MAX_ORC_BLOCK_BYTES: Final = (1 << 23) - 1
"""A compression chunk's header has 23 bits for the chunk's length (ORC specification, "Compression")."""

MAX_ORC_FOOTER_BYTES: Final = 128 * 1024 * 1024
"""An ORC footer, stripe footer or metadata section, inflated; 1,000 columns × 50 stripes take 2 MB."""

MAX_ORC_INDEX_BYTES: Final = 64 * 1024 * 1024
"""One column's index or Bloom filter stream in one stripe, inflated; 50 million values at 1 % take 60 MB."""

MAX_ORC_STRIPE_BYTES: Final = (1 << 31) - 1
"""Streams of a stripe that are decoded at once, inflated; stripes are 64 to 256 MiB compressed, and Arrow's texts end
here."""

MAX_ORC_DECODED_BYTES: Final = 512 * 1024 * 1024
"""To which all stripes of an ORC file may decode together, beside"""

MAX_ORC_RATIO: Final = 64
"""bytes for each that is stored: runs and dictionaries stand for thousands of times as many bytes as they take. Tables
that nobody made up decode to some ten times as many."""

MAX_ORC_VALUES: Final = 1 << 28
"""Values of one column in one stripe, those inside lists and maps together: 2 GiB as 64-bit numbers. A few bytes can
stand for 512 values, and a row count for any number of rows."""

MAX_ORC_ROW_GROUPS: Final = 1 << 20
"""Row groups of an ORC file: 10^10 rows at the usual stride of 10,000."""

MAX_ORC_HASHES: Final = 1200
"""Bits per value for which an ORC Bloom filter is asked, though it may have set more: the smallest positive double as
false positive rate asks for some 1,110."""
