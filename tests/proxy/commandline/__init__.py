"""The command line about groups."""
