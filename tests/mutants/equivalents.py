"""Mutants that don't fail because they are right: each with the reason."""

from dataclasses import dataclass

ATTENTIONS = ("attention", "causal_attention")


@dataclass(frozen=True)
class Known:
    """Mutants of ``tasks`` by ``operator`` whose name has ``text`` in it are right, and ``why``.

    ``same_outputs``: not a bit of the output may differ; else it may within the bound, from rounding.
    """

    tasks: tuple[str, ...]
    operator: str
    text: str
    why: str
    same_outputs: bool = True

    def matches(self, task: str, operator: str, name: str) -> bool:
        return task in self.tasks and operator == self.operator and self.text in name


BEYOND = "the further blocks lie outside: what they copy in is zeros, what they write is guarded away"
ZEROS = "the further tiles lie outside: T.copy gives zeros, which add nothing"
OVERWRITTEN = "done anew in each step, but the last one's is what counts"
FIRST_FACTOR = "the first step multiplies it by exp2(-inf - m) = 0, so it may start with any number"
INFINITE = "-inf times or over any positive number is -inf"
SHIFTED = "one number more in all scores of a row: softmax doesn't change"
POSITIVE = "the terms are positive"
DEAD = "what it held isn't needed any more when the other is written"
MAX_TWICE = "a running maximum of the same values again is the same"
ROUNDED_ANYWAY = "it is stored as a half right after"
WEIGHTS = "the weights are rounded to halves for the product anyway, and their sum may be that of the rounded ones"

KNOWN = (
    # Further tiles and blocks
    Known(("matmul", "linear_gelu"), "a grid off by one", "3  →  4 blocks along x", BEYOND),
    Known(("matmul", "linear_gelu"), "a grid off by one", "2  →  3 blocks along y", BEYOND),
    Known(("softmax", "online_softmax", *ATTENTIONS), "a grid off by one", "2  →  3 blocks along x", BEYOND),
    Known(ATTENTIONS, "a grid off by one", "3  →  4 blocks along y", BEYOND),
    Known(ATTENTIONS, "a grid off by one", "2  →  3 blocks along z", BEYOND),
    Known(("matmul", "linear_gelu"), "a loop off by one", "k to 3", ZEROS),
    Known(("attention",), "a loop off by one", "n to 3", "all scores of the further tile are masked"),
    Known(("causal_attention",), "a loop off by one", "n to tiles + 1", "the further tile is masked by causality"),
    Known(
        ("causal_attention",), "another number", "1  →  2  in  tiles", "the further tile is masked by causality"
    ),
    Known(("online_softmax",), "a loop off by one", "n to 4", "the further tile is guarded as the tail is"),
    Known(
        ("online_softmax",),
        "a loop off by one",
        "j to 17  in  parallel j: if",
        "the next tile's first column is written by this step, too, with the same value (on vectors of another "
        "length torch may round exp2 otherwise)",
        same_outputs=False,
    ),
    # Statements
    Known(
        ("matmul",),
        "move into the loop",
        "C[by * 32:by * 32 + 32, bx * 32:bx * 32 + 32])  to the end",
        OVERWRITTEN,
    ),
    Known(("linear_gelu",), "move into the loop", "added[0:32])  to the end", OVERWRITTEN),
    Known(("online_softmax",), "move into the loop", "/ total[i]  to the end", OVERWRITTEN),
    Known(("online_softmax", *ATTENTIONS), "do a statement twice", "'max', 1, False)", MAX_TWICE),
    Known(
        ATTENTIONS,
        "do a statement twice",
        "for n: T.copy(K",
        "every key counts twice, in the sum that divides, too",
        same_outputs=False,
    ),
    # Numbers
    Known(("online_softmax",), "another number", "in  T.fill(total[0:16], 0)", FIRST_FACTOR),
    Known(ATTENTIONS, "another number", "in  T.fill(total[0:32], 0)", FIRST_FACTOR),
    Known(ATTENTIONS, "another number", "in  T.fill(o[0:32, 0:32], 0)", FIRST_FACTOR),
    Known(("online_softmax",), "another number", "-1e+30  →  -", "lower than any input but -inf, as it must be"),
    Known(
        ("online_softmax",), "another number", "0  →  1  in  x[i, j] = T.if_then_else(", "rows that lie outside"
    ),
    Known(("online_softmax", *ATTENTIONS), "another number", "-1  →  -", INFINITE),
    Known(("online_softmax", *ATTENTIONS), "another operator", "T.infinity('float32') / -1", INFINITE),
    Known(ATTENTIONS, "another number", "0  →  1  in  s[i, j] =", SHIFTED, same_outputs=False),
    # Reductions and buffers
    Known(("softmax", "online_softmax", *ATTENTIONS), "another reduction", "'abssum'", POSITIVE),
    Known(("softmax",), "one buffer for two", "total is top", DEAD),
    Known(ATTENTIONS, "one buffer for two", "v is k", DEAD),
    Known(ATTENTIONS, "one buffer for two", "p is k", DEAD),
    Known(ATTENTIONS, "one buffer for two", "factor is before", DEAD),
    Known(ATTENTIONS, "one buffer for two", "part is before", DEAD),
    # Rounding
    Known(("linear_gelu",), "round a value", "to float16  in  z[i, j] = 0.5 *", ROUNDED_ANYWAY),
    Known(ATTENTIONS, "round a value", "to float16  in  o[i, j] = o[i, j] / total[i]", ROUNDED_ANYWAY),
    Known(
        ATTENTIONS, "round a value", "in  s[i, j] = T.if_then_else(", "0 and -inf are what they are in any dtype"
    ),
    Known(ATTENTIONS, "round a value", "to float16  in  s[i, j] = T.exp2(", WEIGHTS, same_outputs=False),
    Known(
        ATTENTIONS,
        "a narrower dtype",
        "part in float16",
        "each weight is in one tile's sum only: that is rounded once, as the weights may be",
        same_outputs=False,
    ),
)


def known(task: str, operator: str, name: str) -> Known | None:
    return next((entry for entry in KNOWN if entry.matches(task, operator, name)), None)
