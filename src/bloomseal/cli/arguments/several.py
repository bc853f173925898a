"""Several inputs as one stream of rows: one schema, or an error that names the two that differ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from ...core.errors import UsageError
from .inputs import Input, InputOptions, open_input

__all__ = ["open_inputs"]


@contextlib.contextmanager
def open_inputs(paths: Sequence[str], options: InputOptions) -> Iterator[Input]:
    """Open input files one after the other, as `open_input` does a single one.

    All are looked at before the first row is given out; then one is open at a time. `batches` counts files, a file that
    is half read as a half.

    Raises:
        UsageError: another header (names, or their order), or a column of another type than in the first file; standard
            input beside other inputs. And as `open_input`.
        FormatError: as `open_input`.
    """
    if len(paths) == 1:
        with open_input(paths[0], options) as found:
            yield found
        return
    if "-" in paths:
        raise UsageError("standard input stands alone: all inputs are looked at before the first row is written")
    schema = _one_schema(paths, options)
    # What is known is not found out again; a type that only other files have is given to those without a value of it.
    plain = {field.name: field.type for field in schema if not pa.types.is_nested(field.type)}
    said = replace(options, types={**options.types, **plain})

    def batches() -> Iterator[tuple[pa.RecordBatch, float]]:
        for number, path in enumerate(paths):
            with open_input(path, said) as found:
                for batch, done in found.batches:
                    yield batch.cast(schema), number + (done / found.total if found.total else 0)

    yield Input(schema, batches(), len(paths))


def _one_schema(paths: Sequence[str], options: InputOptions) -> pa.Schema:
    fields: list[pa.Field] = []
    owners: list[str] = []
    for path in paths:
        with open_input(path, options) as found:
            schema = found.schema
        if not fields:
            fields, owners, metadata = list(schema), [path] * len(schema), schema.metadata
        names = [field.name for field in fields]
        if schema.names != names:
            raise UsageError(
                f"other columns, or another order of them, than in {paths[0]}",
                file=path,
                hint=_difference(names, schema),
            )
        for place, (one, other) in enumerate(zip(fields, schema, strict=True)):
            nullable = one.nullable or other.nullable
            if pa.types.is_null(one.type):
                fields[place], owners[place] = other.with_nullable(nullable), path
            elif pa.types.is_null(other.type) or one.type == other.type:
                fields[place] = one.with_nullable(nullable)
            else:
                raise UsageError(
                    f"{other.type} here and {one.type} in {owners[place]}", file=path, column=one.name,
                    hint=f"--type '{one.name}=string', or another type that holds both",
                )  # fmt: skip
    return pa.schema(fields, metadata)


def _difference(names: Sequence[str], schema: pa.Schema) -> str:
    missing = [name for name in names if name not in schema.names]
    more = [name for name in schema.names if name not in names]
    said = [f"without {', '.join(missing)}"] * bool(missing) + [f"with {', '.join(more)}"] * bool(more)
    return "; ".join(said) or f"the order is {', '.join(names)}"
