"""Side-by-side benchmarks: Bloomseal against its peers in one run. `python -m bench --help`."""
