"""Lab 08, introspection: what each point is for.

What a kernel has right in spite of its planted bug earns nothing until the bug is gone.
"""

from grader.autograders.table import points
from grader.catalog import Group
from grader.judge import lab08_landmarks as lab08

SCALED, SCORES, STANDARD, NAMED = "scale_rows-right", "scores-right", "standardise-right", "scores-named"


@points(5, cell=SCALED, title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("scale_rows"))


@points(15, cell=SCALED, title="Rows of several tiles are scaled right")
def test_scaled(submission, assess):
    assess(submission.correct("scale_rows", Group.TILES))


@points(10, cell=SCALED, title="Rows are scaled right where the last tile sticks out")
def test_scaled_tails(submission, assess):
    assess(submission.correct("scale_rows", Group.TAILS))


@points(5, cell=SCALED, title="It uses only memory that exists and was written; no T.print is left")
def test_scaled_tidy(submission, assess):
    right = submission.correct("scale_rows", Group.TILES)
    assess(lab08.after(right, lambda: lab08.tidy(submission, "scale_rows")))


@points(
    15, cell=SCORES, title="The compiler's output copies asynchronously and uses the best tensor-core operation"
)
def test_scores(submission, assess):
    assess(lab08.mended(submission))


@points(5, cell=SCORES, title="Products are still right where the last tiles stick out")
def test_scores_tails(submission, assess):
    assess(lab08.after(lab08.mended(submission), lambda: submission.correct("scores", Group.TAILS)))


@points(5, cell=SCORES, title="Products use only memory that exists and was written; no T.print is left")
def test_scores_tidy(submission, assess):
    assess(lab08.after(lab08.mended(submission), lambda: lab08.tidy(submission, "scores")))


@points(15, cell=STANDARD, title="Rows are standardised right, and each element is read once")
def test_standardised(submission, assess):
    assess(submission.lean("standardise"))


@points(5, cell=STANDARD, title="Rows are standardised right where the tile sticks out")
def test_standardised_tails(submission, assess):
    assess(lab08.after(submission.lean("standardise"), lambda: submission.correct("standardise", Group.TAILS)))


@points(5, cell=STANDARD, title="Standardising uses only memory that exists and was written; no T.print is left")
def test_standardised_tidy(submission, assess):
    assess(lab08.after(submission.lean("standardise"), lambda: lab08.tidy(submission, "standardise")))


@points(8, cell=NAMED, title="The landmarks for sm_80 (A100) are named and counted right")
def test_named_for_ampere(submission, assess):
    assess(submission.judge_value("landmarks_sm_80", lambda answers: lab08.named(submission, "sm_80", answers)))


@points(7, cell=NAMED, title="The landmarks for sm_90a (Hopper) are named and counted right")
def test_named_for_hopper(submission, assess):
    assess(submission.judge_value("landmarks_sm_90a", lambda answers: lab08.named(submission, "sm_90a", answers)))
