"""Decides which bytes to read, and why: predicates, pruning, coalescing, the read plan as data. No I/O, no pyarrow."""
