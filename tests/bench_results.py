"""Measurements with round numbers, for tests of what is made of them."""

from grader.verdict import Finding
from grader.verdict.bench import Bench, CardState, Estimate, Measurement, Peer, Row, Speed, Trouble
from grader.verdict.chart import Chart, Point, Role, Roof, Work

STATE = CardState(sm_mhz=(1700, 1980), celsius=(31, 58), watts=640.0)

ROOFS = (
    Roof("memory", 4800.0, memory=True),
    Roof("fp16 tensor cores", 989.5),
    Roof("fp32 units", 67.0),
    Roof("memory", 4370.0, memory=True, measured=True),
    Roof("fp16 tensor cores", 760.0, measured=True),
)


def estimate(value: float, half_width: float = 0.002) -> Estimate:
    return Estimate(value, value * (1 - half_width), value * (1 + half_width))


def measurement(kernel: Speed, *peers: Peer, **more) -> Measurement:
    return Measurement(kernel, peers, 400, "CUDA events", 0.0017, 0.02, 0.0, STATE, **more)


def add_row(**more) -> Row:
    """3 GB in 1 ms (kernel) and in 0.75 ms and 1.5 ms (peers)."""
    kernel = Speed(estimate(1.0), 3000.0, of_ceiling=0.75, of_peak=0.625)
    fast = Peer("torch.add", Speed(estimate(0.75), 4000.0, 1.0, 0.8333), estimate(0.75))
    slow = Peer("torch.compile", Speed(estimate(1.5), 2000.0, 0.5, 0.4167), estimate(1.5))
    found = measurement(kernel, fast, slow, **more)
    return Row("lab01_vector_add", "vector_add", "large", "N = 250", "GB/s", 3 * 10**9, 250_000_000, 1 / 12, found)


def wrong_row() -> Row:
    finding = Finding("3 of 9 elements of 'C' are wrong.", evidence=("C[0] is 1, should be 2",))
    return Row("lab02_matmul", "matmul", "4096", "M = 1", "TFLOP/s", 100, 1000, 10.0, None, Trouble.WRONG, finding)


def bench(*rows: Row) -> Bench:
    versions = {"torch": "2.13.0", "driver": "580.1"}
    return Bench("NVIDIA H200", "2026-01-02T03:04:05+00:00", "the labs' solutions", rows, ROOFS, versions)


def work(title: str, intensity: float, *named: tuple[str, float]) -> Work:
    """A kernel and peers, by their TFLOP/s."""
    return Work(
        title,
        tuple(
            Point(name, f"{tflops:.3g} TFLOP/s", intensity, tflops, Role.PEER if number else Role.KERNEL)
            for number, (name, tflops) in enumerate(named)
        ),
    )


NINE = (
    work("vector_add", 1 / 12, ("kernel", 0.363), ("torch.add", 0.3625), ("torch.compile", 0.361)),
    work("matmul, 4096", 1365, ("kernel", 667), ("cuBLAS", 683)),
    work("softmax", 1.25, ("kernel", 5.05), ("torch.softmax", 1.59), ("torch.compile", 2.2)),
    work("flash_attention", 2048, ("kernel", 617), ("cuDNN attention", 587), ("flash attention", 345)),
    work("matmul_gelu", 1350, ("kernel", 574), ("torch eager", 526), ("torch.compile", 614)),
    work("causal attention", 1024, ("kernel", 521), ("cuDNN attention", 535), ("flash attention", 332)),
    work("rmsnorm", 1.0, ("kernel", 4.1), ("torch eager", 0.9), ("torch.compile", 3.9)),
    work("gemv", 1.0, ("kernel", 3.6), ("cuBLAS", 3.9)),
    work("scan", 0.125, ("kernel", 0.325), ("torch.cumsum", 0.275)),
)

CHARTS = {
    "one": Chart("one", ROOFS, NINE[1:2]),
    "two": Chart("two", ROOFS, NINE[:2]),
    "five": Chart("five", ROOFS, NINE[:5]),
    "nine": Chart("nine", ROOFS, NINE),
    "above the roof": Chart("above", ROOFS, (work("copy", 0.25, ("kernel", 20.0), ("torch", 1.0)), NINE[0])),
    "no roofs": Chart("no roofs", (), NINE[:2]),
    "roofs alone": Chart("roofs alone", ROOFS, (), ("matmul: wrong.",)),
}
