"""The rows of the suite, in the order in which they run."""

from . import files, authors, kernels, starting, many, tables, orc, spark, memory, growth  # noqa: F401, I001  # the order is the table's
