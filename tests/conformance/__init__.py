"""Conformance: kernels of our own for every construct of TileLang's tile-level language, against torch in float64.

    python -m tests.conformance                  # on the simulator: a table, and what is wrong
    python -m tests.conformance --device cuda    # the same kernels on the card, beside the simulator

``kernels`` holds the kernels by theme, ``registry`` what a case is, ``bounded`` how far a right result may be
off, ``simulated`` and ``card`` the two ways to run a case, ``table`` what is printed.
"""
