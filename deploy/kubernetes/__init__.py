"""Manifests for Kubernetes, and the program that writes the one that is generated."""
