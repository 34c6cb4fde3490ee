"""One module per API. Each module docstring lists the versions and what each version added, with its KIP.

The lists use short forms. "Throttling after the reply" means that the broker replies at once and then stops reading the
connection for the throttle time, instead of delaying the reply. "Flexible" means that the messages of this version and
later versions have compact lengths and tagged fields.
"""
