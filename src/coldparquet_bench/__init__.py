"""Benchmarks against the readers that people have today, on a simulated cold store."""
