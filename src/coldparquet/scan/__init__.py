"""From a question to rows: planning each partition, fetching ahead, decoding in order."""
