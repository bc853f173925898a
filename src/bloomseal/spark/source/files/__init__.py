"""Which files a table has, as Spark sees the folder, or as a log says it."""
