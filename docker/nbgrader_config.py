"""nbgrader's configuration in the image: the same one as everywhere else, for the course folder
TILELAB_COURSE.

Installed as /etc/jupyter/nbgrader_config.py. The course folder's own nbgrader_config.py, which is read after
it, says the same.
"""

import os
from pathlib import Path

from grader.classroom.settings import configure

configure(get_config(), Path(os.environ.get("TILELAB_COURSE", "course")))  # noqa: F821 (given by traitlets)
