"""How the files beside this one were made: with DataFusion 49.0.0 (arrow-rs), whose build from PyPI knows encryption.

``pip install datafusion==49.0.0 pyarrow``, then run it in an empty folder. Keys and nonces are fresh in each run, so
that the digests in the tests are those of the stored files.
"""

from __future__ import annotations

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq

FOOTER_KEY, COLUMN_KEY = b"0123456789012345", b"1234567890123450"


def main() -> None:
    rows = range(200)
    table = {
        "ssn": [f"{i * 7919 % 1000000:09}" for i in rows],
        "visit": list(rows),
        "name": [f"name {i}" for i in rows],
    }
    pq.write_table(pa.table(table), "source.parquet")
    context = datafusion.SessionContext()
    context.register_parquet("t", "source.parquet")
    for name, encrypted in (("encrypted-footer", "true"), ("plaintext-footer", "false")):
        context.sql(f"""
            COPY (SELECT * FROM t) TO '{name}.parquet' STORED AS PARQUET OPTIONS (
                'format.bloom_filter_enabled::ssn' 'true', 'format.bloom_filter_ndv::ssn' '200',
                'format.crypto.file_encryption.encrypt_footer' '{encrypted}',
                'format.crypto.file_encryption.footer_key_as_hex' '{FOOTER_KEY.hex()}',
                'format.crypto.file_encryption.column_key_as_hex::ssn' '{COLUMN_KEY.hex()}',
                'format.crypto.file_encryption.column_key_as_hex::name' '{COLUMN_KEY.hex()}')
        """).collect()  # noqa: S608


if __name__ == "__main__":
    main()
