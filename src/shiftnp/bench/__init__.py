"""Measurements of speed that the command line runs."""
