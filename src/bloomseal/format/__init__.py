"""The parts of a Parquet file: layout, schema, footer, walk, pages. One file, nothing chosen and nothing written."""
