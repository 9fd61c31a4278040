"""What tests need, ours and yours: a simulated cold S3, stores that are slow or fail, hypothesis strategies."""
