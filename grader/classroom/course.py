"""Makes and refreshes an instructor's course folder: source notebooks and nbgrader's configuration.

Students' work and the gradebook (``submitted/``, ``autograded/``, ``gradebook.db``, ...) are never touched.
"""

from collections.abc import Sequence
from pathlib import Path

from grader.catalog import LABS, Lab
from grader.classroom.build import PointTable, Report, make_labs, notebook_text, write_if_changed
from grader.messages import _
from grader.verdict import Finding

CONFIG = '''"""nbgrader for this course folder. Your own settings may follow below."""

from pathlib import Path

from grader.classroom.settings import configure

c = get_config()
configure(c, Path(__file__).parent, language="{language}")
'''


def source_notebook(course: Path, lab_id: str) -> Path:
    return course / "source" / lab_id / f"{lab_id}.ipynb"


def refresh(
    root: Path,
    course: Path,
    *,
    labs: Sequence[Lab] = LABS,
    point_table: PointTable | None = None,
    language: str = "en",
) -> Report:
    """Write ``course/source/<lab>/<lab>.ipynb`` from ``root/solutions`` and a missing configuration.

    Running it again changes nothing. An ``nbgrader_config.py`` that somebody changed is left alone; it is a
    finding if it no longer calls ``configure``, because points would then come from the students' kernels.
    """
    made, findings = make_labs(root, labs, point_table, language)
    if findings:
        return Report(tuple(lab.id for lab in made), (), tuple(findings))
    written = [
        path
        for lab in made
        if write_if_changed(path := source_notebook(course, lab.id), notebook_text(lab.solution))
    ]
    # nbgrader looks for it at each start. TILELAB_EXCHANGE puts it where other accounts can reach it.
    (course / "exchange").mkdir(exist_ok=True)
    config = course / "nbgrader_config.py"
    if not config.exists():
        config.write_text(CONFIG.format(language=language))
        written.append(config)
    elif "configure(" not in config.read_text():
        findings.append(
            Finding(
                _("{file} doesn't load the configuration of TileLang Labs").format(file=config.name),
                _("Move it away and run this again, or copy into it: {line}").format(
                    line="from grader.classroom.settings import configure; configure(get_config(), "
                    "Path(__file__).parent)"
                ),
            )
        )
    return Report(tuple(lab.id for lab in made), tuple(written), tuple(findings))
