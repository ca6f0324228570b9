"""Lab 06, FlashAttention: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group


@points(3, cell="attention-right", title="attention can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("attention"))


@points(14, cell="attention-right", title="Attention is right where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("attention", Group.TILES))


@points(10, cell="attention-right", title="Attention is right where the last tiles stick out")
def test_tails(submission, assess):
    assess(submission.correct("attention", Group.TAILS))


@points(5, cell="attention-right", title="Only memory that exists, and was written, is used")
def test_clean(submission, assess):
    assess(submission.clean("attention"))


@points(6, cell="attention-right", title="No scores in global memory; K and V are read once for a block")
def test_lean(submission, assess):
    assess(submission.lean("attention"))


@points(7, cell="attention-fast", title="Tensor cores are kept busy over 2048 keys")
def test_fast_2k(submission, assess):
    assess(submission.fast("attention", "2k"))


@points(8, cell="attention-fast", title="Tensor cores are kept busy over 8192 keys")
def test_fast_8k(submission, assess):
    assess(submission.fast("attention", "8k"))


@points(2, cell="causal_attention-right", title="causal_attention can be built, with its parameters", free=True)
def test_causal_signature(submission, assess):
    assess(submission.signature("causal_attention"))


@points(12, cell="causal_attention-right", title="No query sees the future, where the tiles fit")
def test_causal_correct(submission, assess):
    assess(submission.correct("causal_attention", Group.TILES))


@points(6, cell="causal_attention-right", title="No query sees the future, where the last tiles stick out")
def test_causal_tails(submission, assess):
    assess(submission.correct("causal_attention", Group.TAILS))


@points(4, cell="causal_attention-right", title="causal_attention uses only memory that exists and was written")
def test_causal_clean(submission, assess):
    assess(submission.clean("causal_attention"))


@points(8, cell="causal_attention-right", title="Tiles that lie in the future are left out")
def test_causal_lean(submission, assess):
    assess(submission.lean("causal_attention"))


@points(7, cell="causal_attention-fast", title="Half of the work takes less time, over 2048 keys")
def test_causal_fast_2k(submission, assess):
    assess(submission.fast("causal_attention", "2k"))


@points(8, cell="causal_attention-fast", title="Half of the work takes half of the time, over 8192 keys")
def test_causal_fast_8k(submission, assess):
    assess(submission.fast("causal_attention", "8k"))
