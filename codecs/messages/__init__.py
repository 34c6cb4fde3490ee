"""One file per API. Each docstring lists the versions and what each brought, with its KIP."""
