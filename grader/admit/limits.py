"""Sizes that keep the compiler, the simulator and the card from being exhausted.

They lie well above what any lab needs and below what makes trouble.
"""

from math import prod

from grader.admit.refusal import Refused
from grader.admit.signature import constants
from grader.ir import nodes
from grader.messages import _

MAX_STATEMENTS = 2_000
MAX_EXPRESSION = 1_000  # nodes, with every let written out: the compiler does that
MAX_STAGES = 8
MAX_UNROLLED = 4_096  # copies of a statement in nested unrolled loops
MAX_PARALLEL = 2**20  # iterations of a T.Parallel nest
MAX_THREADS = 1_024
MAX_SHARED = 232_448  # bytes a block: what the largest card has (227 KiB)
MAX_FRAGMENTS = 2**20  # bytes a block
MAX_GRID = {"x": 2**31 - 1, "y": 65_535, "z": 65_535}


def check_limits(kernel: nodes.Kernel) -> None:
    _grid(kernel)
    _memory(kernel)
    _Sizes(kernel.line).stmt(kernel.body, unrolled=1, parallel=1)


def _grid(kernel: nodes.Kernel) -> None:
    threads = prod(kernel.threads)
    if threads > MAX_THREADS:
        raise Refused(
            _("the kernel asks for {threads} threads a block; a card has at most {limit}").format(
                threads=threads, limit=MAX_THREADS
            ),
            kernel.line,
        )
    for dimension in kernel.grid:
        extent = constants((dimension.extent,))
        if extent is None or not 1 <= extent[0] <= MAX_GRID[dimension.axis]:
            raise Refused(
                _("the launch grid's {axis} dimension must be a constant from 1 to {limit}").format(
                    axis=dimension.axis, limit=MAX_GRID[dimension.axis]
                ),
                kernel.line,
            )


def _memory(kernel: nodes.Kernel) -> None:
    shared = fragments = 0
    for buffer in kernel.allocations:
        size = prod(constants(buffer.shape) or ()) * nodes.ITEM_SIZE[buffer.dtype]
        if buffer.scope in (nodes.SHARED, nodes.SHARED_DYNAMIC):
            shared += size
        else:
            fragments += size
    if shared > MAX_SHARED:
        raise Refused(
            _("the kernel's shared tiles need {size} KiB a block; a card has at most {limit} KiB").format(
                size=shared // 1024, limit=MAX_SHARED // 1024
            ),
            kernel.line,
            _("Choose smaller tiles."),
        )
    if fragments > MAX_FRAGMENTS:
        raise Refused(
            _("the kernel's fragments need {size} KiB a block, more than the registers of any card").format(
                size=fragments // 1024
            ),
            kernel.line,
            _("Choose smaller tiles."),
        )


class _Sizes:
    def __init__(self, line: nodes.Line | None) -> None:
        self.line = line
        self.statements = 0
        self.lets: dict[nodes.Var, int] = {}

    def stmt(self, stmt: nodes.Stmt, unrolled: int, parallel: int) -> None:
        self.line = stmt.line or self.line
        self.statements += 1
        if self.statements > MAX_STATEMENTS:
            raise Refused(_("the kernel has more than {limit} statements").format(limit=MAX_STATEMENTS), self.line)
        if isinstance(stmt, nodes.For):
            unrolled, parallel = self._loop(stmt, unrolled, parallel)
        for child in nodes.children(stmt):
            if isinstance(child, nodes.Stmt):
                self.stmt(child, unrolled, parallel)
            else:
                size = self.size(child)
                if isinstance(stmt, nodes.Bind):
                    self.lets[stmt.var] = size

    def _loop(self, loop: nodes.For, unrolled: int, parallel: int) -> tuple[int, int]:
        stages = loop.annotations.get("num_stages", 0)
        if not isinstance(stages, int) or stages > MAX_STAGES:
            raise Refused(
                _("a pipeline has {stages} stages; at most {limit} are admitted").format(
                    stages=stages, limit=MAX_STAGES
                ),
                self.line,
            )
        if loop.kind == nodes.SERIAL:
            return unrolled, parallel
        extent = constants((loop.extent,))
        if extent is None:
            raise Refused(_("a parallel or unrolled loop needs a constant extent"), self.line)
        if loop.kind == nodes.PARALLEL:
            parallel *= max(extent[0], 1)
        else:
            unrolled *= max(extent[0], 1)
        if parallel > MAX_PARALLEL or unrolled > MAX_UNROLLED:
            raise Refused(
                _("a parallel or unrolled loop nest has too many iterations ({count})").format(
                    count=max(parallel, unrolled)
                ),
                self.line,
            )
        return unrolled, parallel

    def size(self, expr: nodes.Expr) -> int:
        """Nodes of an expression with the lets in it written out."""
        size = self.lets.get(expr, 1) if isinstance(expr, nodes.Var) else 1
        for child in nodes.children(expr):
            size += self.size(child)
            if size > MAX_EXPRESSION:
                raise Refused(
                    _("an expression grows beyond {limit} terms once its variables are written out").format(
                        limit=MAX_EXPRESSION
                    ),
                    self.line,
                )
        return size
