"""The modules that models are put together from."""
