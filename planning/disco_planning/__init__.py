"""Planning without a framework: layer tables, latency model, sparsity, link and board profiles."""
