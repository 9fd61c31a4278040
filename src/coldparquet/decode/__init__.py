"""Decodes fetched bytes to Arrow. Processor work only: nothing here awaits or touches a store."""
