"""Pictures, one file per kind."""
