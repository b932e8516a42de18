"""The host's side of Linux nodes: conversations with their agents."""
