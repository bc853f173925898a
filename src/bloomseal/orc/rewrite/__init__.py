"""ORC files written anew without decoding their data: new filters, filters repaired, new local keys."""
