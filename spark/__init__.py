"""The fleet pipeline, which aggregates the records of all sidecars. Only this package imports pyspark.

- `cli`, `command_arguments`, `jobs`: the command line, its arguments, and the work of its subcommands
- `job_outcome`: what a job has done, and the JSON file with it for schedulers
- `environment`, `spark_session`: check for PySpark and Java, and configure the Spark session
- `line_sources`, `line_parsing`, `array_lines`: read lines, and turn each into records or put it into quarantine
- `boolean_columns`: combines conditions about a row
- `duplicates`: removes duplicate records
- `ingest`, `stream`, `progress`: write one batch to the store, run the stream of batches, and report its health
- `recompute`: computes the tables of the hours of a batch again
- `requeue`: judges lines in quarantine again
- `store`, `store_settings`, `batch_store`, `write_attempts`, `lease`, `segment_ledger`, `filesystem`: the tables on
  disk
- `journal_files`: finds files of the journals that need attention
- `missed_segments`: ingests segments that a stream did not read, and finds sidecars with the same id
- `doctor`, `doctor_checks`, `doctor_output`: what an operator must do: the findings about a store, and their output
- `tables`, `queries/`: the tables, and the queries that fill them
- `summaries`, `summary_queries`: the summaries of the tables, and the queries that fill them
- `output`, `report/`: the output for people
- `textfile`: metrics for node_exporter's textfile collector
- `tables_page`: prints docs/tables.md
"""
