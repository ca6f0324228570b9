"""Kernels that would be paid for work that they don't do: a corpus, and what the judge must say to each.

Only what an IR can express: a student's process hands over nothing else. ``attack`` says what a case is;
``on_output``, ``on_memory``, ``on_timing`` and ``at_one_shape`` hold them; ``test_refused`` judges them without a
GPU, ``test_on_card`` those that only a card can tell.
"""
