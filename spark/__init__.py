"""The fleet pipeline: what all sidecars tell, aggregated. The only room with pyspark."""
