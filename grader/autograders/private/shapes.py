"""Further shapes of the official run, by lab and kernel."""

from grader.catalog import Group, Shape

_ATTENTION = (
    Shape("further tiles", {"B": 1, "H": 3, "S": 768, "D": 128}, Group.TILES, hidden=True),
    Shape("further tail", {"B": 2, "H": 2, "S": 259, "D": 64}, Group.TAILS, hidden=True),
    Shape("further small", {"B": 1, "H": 2, "S": 17, "D": 128}, Group.TAILS, hidden=True),
)

FURTHER: dict[str, dict[str, tuple[Shape, ...]]] = {
    "lab00_environment": {
        "tile_copy": (
            Shape("further tiles", {"M": 64, "N": 192}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 70, "N": 130}, Group.TAILS, hidden=True),
            Shape("further small", {"M": 3, "N": 2}, Group.TAILS, hidden=True),
        ),
    },
    "lab01_vector_add": {
        "vector_add": (
            Shape("further tiles", {"N": 8192}, Group.TILES, hidden=True),
            Shape("further tail", {"N": 12_289}, Group.TAILS, hidden=True),
            Shape("further small", {"N": 3}, Group.TAILS, hidden=True),
        ),
    },
    "lab02_matmul": {
        "matmul": (
            Shape("further tiles", {"M": 384, "N": 256, "K": 512}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 136, "N": 264, "K": 392}, Group.TAILS, hidden=True),
            Shape("further small", {"M": 16, "N": 8, "K": 8}, Group.TAILS, hidden=True),
        ),
    },
    "lab03_schedules": {
        "scheduled_matmul": (Shape("further tail", {"M": 136, "N": 264, "K": 392}, Group.TAILS, hidden=True),),
    },
    "lab04_fused_epilogue": {
        "gemm_bias_gelu": (
            Shape("further tiles", {"M": 384, "N": 256, "K": 192}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 136, "N": 264, "K": 72}, Group.TAILS, hidden=True),
            Shape("further small", {"M": 16, "N": 8, "K": 8}, Group.TAILS, hidden=True),
        ),
    },
    "lab05_softmax": {
        "softmax": (
            Shape("further tiles", {"M": 24, "N": 1536}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 17, "N": 3001}, Group.TAILS, hidden=True),
            Shape("further small", {"M": 3, "N": 7}, Group.TAILS, hidden=True),
        ),
        "online_softmax": (
            Shape("further tiles", {"M": 2, "N": 40_960}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 3, "N": 12_289}, Group.TAILS, hidden=True),
            Shape("further small", {"M": 2, "N": 5}, Group.TAILS, hidden=True),
        ),
    },
    "lab06_flash_attention": {"attention": _ATTENTION, "causal_attention": _ATTENTION},
    "lab07_autotuning": {
        "projection": (Shape("further tail", {"M": 7, "N": 264, "K": 392}, Group.TAILS, hidden=True),),
    },
    "lab08_introspection": {
        "scale_rows": (
            Shape("further tiles", {"M": 4, "N": 6144}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 3, "N": 2050}, Group.TAILS, hidden=True),
        ),
        "scores": (Shape("further tail", {"M": 136, "N": 264, "K": 392}, Group.TAILS, hidden=True),),
        "standardise": (
            Shape("further tiles", {"M": 6, "N": 2048}, Group.TILES, hidden=True),
            Shape("further tail", {"M": 3, "N": 1537}, Group.TAILS, hidden=True),
        ),
    },
}
