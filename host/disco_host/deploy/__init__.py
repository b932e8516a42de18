"""Putting agents onto Linux nodes over ssh, and taking them away again."""
