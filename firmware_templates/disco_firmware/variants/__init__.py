"""The kernel variants: ways to compute one kind of op, from which `disco-export` chooses for each op and board.

`base` says what a variant is, `portable` describes the kernels that run everywhere, `registry` lists all others, each
of which lives in a module of its own, beside its C in runtime/src/variants.
"""
