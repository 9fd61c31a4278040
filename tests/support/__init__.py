"""What several tests share: golden data, oracles, request logs."""
