"""The classroom: labs from ``solutions/``, an instructor's course folder, nbgrader with the judge's points.

Making labs reads ``gaps`` (the marks in a solution), ``script`` (a percent script as a notebook), ``build``
and ``verify``; grading reads ``course``, ``settings`` (the one nbgrader configuration), ``submission`` (what
a student handed in), ``autograde`` (the steps in nbgrader's pipeline), ``gradebook``, ``explain`` and
``grade``.
"""
