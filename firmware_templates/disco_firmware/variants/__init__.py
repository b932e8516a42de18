"""The kernel variants. Each module holds the variants of one kind of op on one kind of core."""
