"""The data source ``format("bloomseal")``: Bloomseal's own reader and writer behind Spark's interface for Python data sources."""
