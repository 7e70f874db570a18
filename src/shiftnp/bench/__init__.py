"""Benchmarks of speed and memory, run by `shiftnp bench`."""
