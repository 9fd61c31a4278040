"""coldparquet in Spark: a data source, a writer, streams and pipelines."""
