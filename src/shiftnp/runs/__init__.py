"""Runs: what they are configured by, how they are trained, evaluated and kept in a folder."""
