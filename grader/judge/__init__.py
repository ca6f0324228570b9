"""Decides what a submission's kernels are worth, from their IR alone.

One file a lab holds a ``Task`` for each kernel: its reference in fp64, inputs, error bound, peer and work.
``submission.Submission`` puts a captured IR through admission, the simulator and the card, and answers the
questions that the autograders ask (``signature``, ``correct``, ``clean``, ``fast``) with an ``Assessment`` each.
"""
