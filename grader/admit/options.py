"""Compiler options that a submission may ask for. Flags and any other option are refused, not dropped.

They come from ``@tilelang.jit(pass_configs={...})``. Whatever they are, they change how a kernel is compiled,
never which program the compiler runs.
"""

from grader.admit.refusal import Refused
from grader.messages import _

ALLOWED = frozenset(
    {
        "tl.enable_fast_math",
        "tl.disable_tma_lower",
        "tl.disable_warp_specialized",
        "tl.enable_aggressive_shared_memory_merge",
    }
)


def admit_options(options: dict[str, object]) -> dict[str, bool | int]:
    """The options, if all are known and true or false. Raises Refused."""
    for name, value in options.items():
        if name not in ALLOWED:
            raise Refused(
                _("the compiler option '{name}' is not admitted").format(name=str(name)[:64]),
                advice=_("Admitted are: {names}.").format(names=", ".join(sorted(ALLOWED))),
            )
        if not isinstance(value, bool):
            raise Refused(_("the compiler option '{name}' must be True or False").format(name=name))
    return dict(options)  # type: ignore[arg-type]
