"""A Parquet file as its modules: footer, schema, walk, filters and the rule of belief."""
