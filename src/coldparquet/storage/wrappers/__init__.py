"""Stores around stores, one concern each: versions, retries, hedges, limits, the ledger."""
