"""The labs, in order."""

from grader.catalog.manifest import Group, Kernel, Lab, Parameter, Role, Shape

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

LABS: tuple[Lab, ...] = (VECTOR_ADD, MATMUL, FLASH_ATTENTION)
