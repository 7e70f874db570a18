"""Neural-network modules that the models are built from."""
