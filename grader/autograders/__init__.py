"""What each point is for: one pytest file a lab, and the ways to run it.

The files ``test_<lab>.py`` here are the only place of points. Every entry runs them: a notebook's ``check``, the
command line, nbgrader, and pytest itself::

    pytest grader/autograders/test_lab02_matmul.py --submission path/to/lab02_matmul.ipynb
"""

from grader.autograders.run import judge_capture, judge_notebook, lab_of, point_table
from grader.autograders.table import PointRow

__all__ = ["PointRow", "judge_capture", "judge_notebook", "lab_of", "point_table"]
