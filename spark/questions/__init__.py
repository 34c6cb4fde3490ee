"""The questions asked of a fleet's records, by subject; each from DataFrame to DataFrame."""
