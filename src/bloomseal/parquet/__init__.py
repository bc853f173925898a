"""Parquet files as their modules: walk, footer, writer, reader, surgery."""
