"""Experiments: protocols, the controlled study, and the runner."""
