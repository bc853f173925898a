"""Joins that ask a table's filters first, with keys that travel sealed."""

from ..versions import check_version

check_version()  # the modules here need what older ones lack
