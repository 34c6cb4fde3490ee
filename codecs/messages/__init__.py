"""One module per API. Each module docstring lists the versions and what each version added, with its KIP."""
