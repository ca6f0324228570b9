"""The labs, in order."""

from grader.catalog.manifest import Group, Kernel, Lab, Parameter, Role, Scheduled, Shape
from grader.catalog.values import Choice, ListOf, Real, Record, Value, Whole

ENVIRONMENT = Lab(
    id="lab00_environment",
    title="The environment, and a first tile",
    version=1,
    kernels=(
        Kernel(
            name="tile_copy",
            arguments=("M", "N"),
            parameters=(
                Parameter("A", "float32", ("M", "N")),
                Parameter("B", "float32", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("one tile", {"M": 32, "N": 64}, Group.TILES),
                Shape("many tiles", {"M": 128, "N": 256}, Group.TILES),
                Shape("tail", {"M": 100, "N": 200}, Group.TAILS),
                Shape("odd", {"M": 33, "N": 65}, Group.TAILS),
                Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
            ),
        ),
    ),
)

VECTOR_ADD = Lab(
    id="lab01_vector_add",
    title="Vector add",
    version=1,
    kernels=(
        Kernel(
            name="vector_add",
            arguments=("N",),
            parameters=(
                Parameter("A", "float32", ("N",)),
                Parameter("B", "float32", ("N",)),
                Parameter("C", "float32", ("N",), Role.OUT),
            ),
            shapes=(
                Shape("one tile", {"N": 1024}, Group.TILES),
                Shape("many tiles", {"N": 65536}, Group.TILES),
                Shape("tail", {"N": 10_000}, Group.TAILS),
                Shape("odd", {"N": 4097}, Group.TAILS),
                Shape("one element", {"N": 1}, Group.TAILS),
                Shape("large", {"N": 2**28}, Group.TIMED),
            ),
        ),
    ),
)

MATMUL = Lab(
    id="lab02_matmul",
    title="Tiled matmul on tensor cores",
    version=1,
    kernels=(
        Kernel(
            name="matmul",
            arguments=("M", "N", "K"),
            parameters=(
                Parameter("A", "float16", ("M", "K")),
                Parameter("B", "float16", ("K", "N")),
                Parameter("C", "float16", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("square", {"M": 256, "N": 256, "K": 256}, Group.TILES),
                Shape("wide", {"M": 128, "N": 512, "K": 384}, Group.TILES),
                Shape("long K", {"M": 128, "N": 128, "K": 2048}, Group.TILES),
                Shape("tail", {"M": 200, "N": 328, "K": 136}, Group.TAILS),
                Shape("small", {"M": 8, "N": 24, "K": 40}, Group.TAILS),
                Shape("4096", {"M": 4096, "N": 4096, "K": 4096}, Group.TIMED),
            ),
        ),
    ),
)

SCHEDULE = Record(
    {
        "block_M": Whole(among=(64, 128, 256)),
        "block_N": Whole(among=(64, 128, 256)),
        "block_K": Whole(among=(32, 64, 128)),
        "num_stages": Whole(1, 6),
        "threads": Whole(among=(128, 256, 512)),
        "swizzle": Whole(0, 32),
    }
)

SCHEDULES = Lab(
    id="lab03_schedules",
    title="Schedules",
    version=1,
    kernels=(
        Kernel(
            name="scheduled_matmul",
            arguments=("M", "N", "K"),
            parameters=(
                Parameter("A", "float16", ("M", "K")),
                Parameter("B", "float16", ("K", "N")),
                Parameter("C", "float16", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("square", {"M": 256, "N": 256, "K": 256}, Group.TILES),
                Shape("tail", {"M": 200, "N": 328, "K": 136}, Group.TAILS),
                Shape("4096", {"M": 4096, "N": 4096, "K": 4096}, Group.TIMED),
            ),
            schedules=Scheduled(tried="schedules", timed="best"),
        ),
    ),
    values=(
        Value(
            "predictions",
            Record(
                {
                    "shared_kib": Real(0, 10_000, "KiB"),  # Real: Python's / makes 144.0 of a right count
                    "most_stages": Real(0, 100),
                    "reads_of_A": Real(0, 10_000),
                    "reads_of_B": Real(0, 10_000),
                }
            ),
        ),
        Value("schedules", ListOf(SCHEDULE, least=4, most=8, distinct=True)),
        Value("best", SCHEDULE),
    ),
)

FUSED_EPILOGUE = Lab(
    id="lab04_fused_epilogue",
    title="Fused epilogue: bias and GELU in the accumulator",
    version=1,
    kernels=(
        Kernel(
            name="gemm_bias_gelu",
            arguments=("M", "N", "K"),
            parameters=(
                Parameter("A", "float16", ("M", "K")),
                Parameter("B", "float16", ("K", "N")),
                Parameter("bias", "float16", ("N",)),
                Parameter("C", "float16", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("square", {"M": 256, "N": 256, "K": 256}, Group.TILES),
                Shape("short K", {"M": 256, "N": 512, "K": 64}, Group.TILES),
                Shape("long K", {"M": 128, "N": 256, "K": 1024}, Group.TILES),
                Shape("tail", {"M": 200, "N": 328, "K": 136}, Group.TAILS),
                Shape("small", {"M": 8, "N": 24, "K": 40}, Group.TAILS),
                Shape("4096", {"M": 4096, "N": 4096, "K": 4096}, Group.TIMED),
            ),
        ),
    ),
)

_ROWS = (Parameter("X", "float32", ("M", "N")), Parameter("Y", "float32", ("M", "N"), Role.OUT))

SOFTMAX = Lab(
    id="lab05_softmax",
    title="Softmax, and rows that fit no tile",
    version=1,
    kernels=(
        Kernel(
            name="softmax",
            arguments=("M", "N"),
            parameters=_ROWS,
            shapes=(
                Shape("many rows", {"M": 64, "N": 128}, Group.TILES),
                Shape("wide rows", {"M": 8, "N": 4096}, Group.TILES),
                Shape("tail", {"M": 33, "N": 1000}, Group.TAILS),
                Shape("odd", {"M": 5, "N": 2049}, Group.TAILS),
                Shape("narrow", {"M": 40, "N": 3}, Group.TAILS),
                Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
                Shape("32768 rows", {"M": 32768, "N": 4096}, Group.TIMED),
            ),
        ),
        Kernel(
            name="online_softmax",
            arguments=("M", "N"),
            parameters=_ROWS,
            shapes=(
                Shape("several tiles", {"M": 4, "N": 16_384}, Group.TILES),
                Shape("long rows", {"M": 2, "N": 65_536}, Group.TILES),
                Shape("tail", {"M": 3, "N": 20_000}, Group.TAILS),
                Shape("odd", {"M": 2, "N": 33_333}, Group.TAILS),
                Shape("less than a tile", {"M": 9, "N": 130}, Group.TAILS),
                Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
                # As many elements as the other kernel's timed shape, in rows 16 times as long: a row is 256 KiB,
                # more than an SM's shared memory holds, and all that its registers do.
                Shape("2048 long rows", {"M": 2048, "N": 65_536}, Group.TIMED),
            ),
        ),
    ),
)


def _attention(name: str) -> Kernel:
    """A kernel over ``B`` batches of ``H`` heads, ``S`` queries and keys each, of ``D`` elements."""

    def shape(name: str, group: Group, sizes: tuple[int, int, int, int]) -> Shape:
        return Shape(name, dict(zip("BHSD", sizes, strict=True)), group)

    size = ("B", "H", "S", "D")
    return Kernel(
        name=name,
        arguments=size,
        parameters=(
            *(Parameter(tensor, "float16", size) for tensor in "QKV"),
            Parameter("O", "float16", size, Role.OUT),
        ),
        shapes=(
            shape("several heads", Group.TILES, (2, 2, 384, 64)),
            shape("wide heads", Group.TILES, (1, 2, 384, 128)),
            shape("long", Group.TILES, (1, 1, 768, 64)),
            shape("tail", Group.TAILS, (1, 2, 200, 128)),
            shape("odd", Group.TAILS, (2, 1, 333, 64)),
            shape("short", Group.TAILS, (1, 3, 5, 64)),
            shape("one key", Group.TAILS, (1, 1, 1, 128)),
            shape("2k", Group.TIMED, (4, 32, 2048, 128)),
            shape("8k", Group.TIMED, (4, 32, 8192, 128)),
        ),
    )


FLASH_ATTENTION = Lab(
    id="lab06_flash_attention",
    title="FlashAttention",
    version=1,
    kernels=(_attention("attention"), _attention("causal_attention")),
)

CONFIG = Record(
    {
        "block_N": Whole(among=(32, 64, 128, 256)),
        "block_K": Whole(among=(32, 64, 128)),
        "num_stages": Whole(among=(2, 3, 4, 5, 6)),
        "threads": Whole(among=(128, 256)),
    }
)
_ANSWER = Whole(0, 256)  # the block_N of a schedule that was found; 0: none was

AUTOTUNING = Lab(
    id="lab07_autotuning",
    title="Autotuning",
    version=1,
    kernels=(
        Kernel(
            name="projection",
            arguments=("M", "N", "K"),
            parameters=(
                Parameter("X", "float16", ("M", "K")),
                Parameter("W", "float16", ("K", "N")),
                Parameter("R", "float16", ("M", "N")),
                Parameter("Y", "float16", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("64 rows", {"M": 64, "N": 512, "K": 512}, Group.TILES),
                Shape("tail", {"M": 100, "N": 328, "K": 136}, Group.TAILS),
                Shape("64 tokens", {"M": 64, "N": 8192, "K": 8192}, Group.TIMED),
            ),
            schedules=Scheduled(tried="configs", timed="tuned"),
        ),
    ),
    values=(
        # As many as there are at all.
        Value("kept", ListOf(CONFIG, least=1, most=4 * 3 * 5 * 2, distinct=True)),
        Value("configs", ListOf(CONFIG, least=3, most=8, distinct=True)),
        Value(
            "cache_answers",
            Record(
                {
                    "before": _ANSWER,
                    "after": _ANSWER,
                    "copied_file": _ANSWER,
                    "other_file": _ANSWER,
                    "other_shape": _ANSWER,
                    "other_dtype": _ANSWER,
                    "other_card": _ANSWER,
                    "other_version": _ANSWER,
                    "first_of_two": _ANSWER,
                    "second_of_two": _ANSWER,
                    "replaced": _ANSWER,
                }
            ),
        ),
        Value("tuned", CONFIG),
    ),
)

#: What is named of a kernel's CUDA source: landmarks by kind, how many places, how many threads a block.
_NAMED = {
    "tensor_cores": Choice(("mma", "wgmma", "tcgen05", "none")),
    "async_copies": Choice(("cp.async", "TMA load", "none")),
    "matrix_loads": Choice(("ldmatrix", "none")),
    "barriers": Choice(("__syncthreads", "mbarrier", "named barrier", "none")),
    "tensor_core_places": Whole(0, 10_000),
    "threads": Whole(1, 1024),
}

INTROSPECTION = Lab(
    id="lab08_introspection",
    title="Introspection",
    version=1,
    kernels=(
        Kernel(
            name="scale_rows",
            arguments=("M", "N"),
            parameters=_ROWS,
            shapes=(
                Shape("several tiles", {"M": 8, "N": 4096}, Group.TILES),
                Shape("tail", {"M": 5, "N": 3000}, Group.TAILS),
                Shape("odd", {"M": 3, "N": 1025}, Group.TAILS),
                Shape("one element", {"M": 1, "N": 1}, Group.TAILS),
            ),
        ),
        Kernel(
            name="scores",
            arguments=("M", "N", "K"),
            parameters=(
                Parameter("A", "float16", ("M", "K")),
                Parameter("B", "float16", ("N", "K")),
                Parameter("C", "float16", ("M", "N"), Role.OUT),
            ),
            shapes=(
                Shape("square", {"M": 256, "N": 256, "K": 256}, Group.TILES),
                Shape("tail", {"M": 200, "N": 328, "K": 136}, Group.TAILS),
                Shape("small", {"M": 8, "N": 24, "K": 40}, Group.TAILS),
            ),
        ),
        Kernel(
            name="standardise",
            arguments=("M", "N"),
            parameters=_ROWS,
            shapes=(
                Shape("rows", {"M": 8, "N": 1024}, Group.TILES),
                Shape("wide rows", {"M": 4, "N": 4096}, Group.TILES),
                Shape("tail", {"M": 5, "N": 1000}, Group.TAILS),
                Shape("narrow", {"M": 6, "N": 3}, Group.TAILS),
            ),
        ),
    ),
    values=(
        Value("landmarks_sm_80", Record(_NAMED | {"copies_before_barrier": Whole(0, 10_000)})),
        Value("landmarks_sm_90a", Record(_NAMED)),
    ),
)

LABS: tuple[Lab, ...] = (
    ENVIRONMENT,
    VECTOR_ADD,
    MATMUL,
    SCHEDULES,
    FUSED_EPILOGUE,
    SOFTMAX,
    FLASH_ATTENTION,
    AUTOTUNING,
    INTROSPECTION,
)
