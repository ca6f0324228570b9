"""Wrong kernels: made by hand and by mutating the IR of right ones, each shown to fail the judge.

``references`` has the right kernels in TileLang, ``tasks`` what is known of them, ``judging`` asks the judge's
own parts about one kernel, ``patches`` are the wrong ones made by hand, ``rewriting`` and ``operators`` make
mutants of typed nodes, ``equivalents`` says why some of those are right after all, ``campaign`` runs and explains
them. ``make mutants`` judges all of them and prints a table.
"""
