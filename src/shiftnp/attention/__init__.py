"""Attention as pure functions of tensors; `reference` is the specification that every other file is tested against."""
