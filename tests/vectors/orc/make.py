"""Writes `encrypted.orc` by the Java library in PySpark's jars (ORC 2.3.0):
`PYTHONPATH=src:tests python tests/vectors/orc/make.py`.

Local keys are random, so that each run writes another file; the one that is kept here has the digest in its test.
"""

from __future__ import annotations

from pathlib import Path

from support.orc_java import java_orc_write, memory_keys

SCHEMA = "struct<id:bigint,name:string,num:int,s:struct<a:int,b:string>>"
ROWS = [[i, f"name{i * 7919 % 10007}" if i % 7 else None, i * 7919 % 10007, [i % 3, f"in{i}"]] for i in range(1500)]
PII, WIDE = bytes(range(16, 32)), bytes(range(32))

if __name__ == "__main__":
    java_orc_write(
        Path(__file__).with_name("encrypted.orc"),
        SCHEMA,
        ROWS,
        memory_keys(("pii", 1, PII), ("wide", 0, WIDE)),
        encrypt="pii:name;wide:num,s",
        filters="id,name,num",
        stripe_rows=1200,
        fpp=0.05,
    )
