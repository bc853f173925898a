"""What a Parquet file is: layout, schema, footer, walk, pages. One file, nothing chosen and nothing written."""
