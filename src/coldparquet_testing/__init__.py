"""Provides test tools for this library and its users: a simulated cold S3, faulty stores, hypothesis strategies."""
