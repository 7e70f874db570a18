"""Predictors to measure models against, with the same contract."""
