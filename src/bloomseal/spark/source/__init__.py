"""The data source ``format("bloomseal")``: Bloomseal's own reader behind Spark's interface for Python data sources."""

from ..versions import check_version

check_version()  # the modules here need what older ones lack
