"""Networks for the examples, defined so that they prune and export cleanly."""
