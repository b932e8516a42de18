"""Boards, chips and the error tree: what a node can run on, as data files."""
