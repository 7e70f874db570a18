"""Names for annotations."""

Real = float | int
"""A number that may be written without a point. (Checkers at run time, unlike mypy, do not take an int for a float.)"""
