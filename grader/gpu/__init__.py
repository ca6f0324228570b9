"""The card: which it is, how kernels are compiled for it and timed on it, and what is asked of them there.

Importing this package touches no driver; compiling and launching happen in disposable worker processes only.
"""
