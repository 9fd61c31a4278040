"""Turns a question into rows: plans each partition, prefetches bytes, decodes in order."""
