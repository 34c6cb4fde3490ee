"""The policies: each rule as a table, and what follows from them as properties."""
