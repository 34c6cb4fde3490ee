"""The soak test: a sidecar serves a varied workload for hours, and its memory and tables must stay flat.

`__main__` is the command line. `workload` has the clients and `upheavals` the changes around them. `samples` measures
the sidecar, `verdict` decides whether a series is flat, and `report` formats the result as a table and a chart.
"""
