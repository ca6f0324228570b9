"""The roofline chart: what it shows, where its labels stand, and that it can be read by eye and by ear."""

import itertools
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from bench_results import CHARTS, NINE, ROOFS, work
from cells import MATMUL
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from grader.cli.app import app
from grader.report import roofline_plot
from grader.report.label_layout import Box, Label, Segment, place
from grader.report.roofline_plot import DARK, LIGHT, describe, page, png, svg, write
from grader.verdict import Unusable
from grader.verdict.chart import Chart, Roof

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawn: str) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(drawn).iter(f"{SVG}text")]


# Where things stand


@pytest.fixture(params=CHARTS)
def figure(request):
    chart = CHARTS[request.param]
    with roofline_plot._own_settings():
        drawn = roofline_plot._figure(chart, LIGHT)
        drawn.canvas.draw()
        yield chart, drawn


def test_every_point_lies_inside_the_axes(figure):
    chart, drawn = figure
    (axes,) = drawn.axes
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for point in chart.points:
        assert left < point.intensity < right
        assert bottom < point.tflops < top


def test_no_text_lies_on_another_or_outside(figure):
    _chart, drawn = figure
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn.texts if not text.get_rotation()]
    for words, box in boxes:
        assert drawn.bbox.x0 <= box.x0 <= box.x1 <= drawn.bbox.x1, words
        assert drawn.bbox.y0 <= box.y0 <= box.y1 <= drawn.bbox.y1, words
    for (words, one), (others, other) in itertools.combinations(boxes, 2):
        apart = one.x1 <= other.x0 or other.x1 <= one.x0 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1
        assert apart, (words, others)


def test_no_text_hides_a_mark(figure):
    chart, drawn = figure
    (axes,) = drawn.axes
    for text in drawn.texts:
        if not text.get_rotation():
            box = text.get_window_extent()
            for point in chart.points:
                x, y = axes.transData.transform((point.intensity, point.tflops))
                assert not (box.x0 < x < box.x1 and box.y0 < y < box.y1), (text.get_text(), point)


boxes = st.tuples(st.floats(0, 8), st.floats(0, 5)).map(lambda at: Box(*at, at[0] + 0.3, at[1] + 0.3))
marks = st.tuples(st.floats(0.5, 9.5), st.floats(0.5, 5.5))
labels = st.builds(Label, st.floats(0.3, 2.2), st.floats(0.2, 0.8), st.tuples(marks))


@settings(deadline=None, max_examples=40)
@given(st.lists(labels, min_size=1, max_size=6), st.lists(boxes, max_size=3), st.lists(marks, max_size=5))
def test_labels_never_overlap_where_there_is_room(wanted, taken, seen):
    region = Box(0, 0, 10, 6)
    seen = [*seen, *(mark for label in wanted for mark in label.marks)]
    found = place(wanted, region, taken=taken, marks=seen, lines=[Segment(0, 0, 10, 6)])
    assert len(found) == len(wanted)
    for label, box in zip(wanted, found, strict=True):
        assert box.x1 - box.x0 == pytest.approx(label.width)
        assert box.y1 - box.y0 == pytest.approx(label.height)
        assert region.x0 <= box.x0
        assert box.x1 <= region.x1 + 1e-9
        assert not any(box.overlaps(other) for other in taken)
        assert not any(box.holds(x, y) for x, y in seen)
    for one, other in itertools.combinations(found, 2):
        assert not one.overlaps(other)


def test_a_label_stands_beside_its_mark_if_nothing_is_in_the_way():
    (box,) = place([Label(1.0, 0.5, ((5.0, 3.0),))], Box(0, 0, 10, 6), marks=[(5.0, 3.0)])
    x, y = box.nearest(5.0, 3.0)
    assert abs(x - 5.0) + abs(y - 3.0) < 0.3
    assert not box.holds(5.0, 3.0)


# What it says


def test_the_svg_holds_every_name_and_figure_as_text():
    drawn = texts(svg(CHARTS["nine"]))
    for one in NINE:
        assert one.title in drawn
        for point in one.points:
            assert f"{point.name}  {point.figure}" in drawn
    assert any("fp16 tensor cores" in text for text in drawn)
    assert "memory: 4.8 TB/s, datasheet" in drawn
    assert "memory: 4.37 TB/s, measured" in drawn


def test_the_svg_has_its_words_for_those_who_cannot_see_it():
    root = ElementTree.fromstring(svg(CHARTS["two"]))
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == "two"
    assert root.find(f"{SVG}desc").text == describe(CHARTS["two"])
    # 667 of min(4800 GB/s × 1365 FLOP/B, 989.5) TFLOP/s
    assert (
        "matmul, 4096: kernel, 667 TFLOP/s, at 1365 operations a byte, 67% of the roof."
        in root.find(f"{SVG}desc").text
    )


def test_the_roof_bends_where_memory_and_operations_meet():
    chart = Chart("", (Roof("memory", 2000.0, memory=True), Roof("units", 100.0), Roof("slow units", 10.0)), ())
    assert chart.height(5.0) == 10.0
    assert chart.height(50.0) == chart.height(5000.0) == 100.0
    assert Chart("", (), ()).height(1.0) == float("inf")


def test_what_has_no_place_is_named():
    assert "matmul: wrong." in texts(svg(CHARTS["roofs alone"]))
    assert describe(CHARTS["roofs alone"]).endswith("matmul: wrong.")


def test_a_chart_of_nothing_is_refused():
    with pytest.raises(Unusable, match="nothing to draw"):
        svg(Chart("", (), ()))


def test_names_are_text_and_never_markup():
    chart = Chart("<b>", ROOFS, (work("a <script> & $x_2$", 10, ("kernel", 5)),))
    drawn = svg(chart)
    assert "<script>" not in drawn
    assert "a <script> & $x_2$" in texts(drawn)
    assert "<script>" not in page(chart)


def test_shapes_tell_a_works_points_apart_without_colour():
    shapes = roofline_plot._shapes(NINE)
    for one in NINE:
        of_work = [shapes[one.title, point.name] for point in one.points]
        assert len(set(of_work)) == len(of_work)
    assert shapes["softmax", "torch.compile"] == shapes["rmsnorm", "torch.compile"]


# How it comes out


def test_the_same_chart_gives_the_same_file():
    assert svg(CHARTS["five"]) == svg(CHARTS["five"])


def test_themes_share_no_colour():
    light, dark = (set(re.findall(r"#[0-9a-f]{6}", svg(CHARTS["two"], theme))) for theme in (LIGHT, DARK))
    assert light == set(vars(LIGHT).values())
    assert dark == set(vars(DARK).values())
    assert not light & dark


def _luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_texts_and_marks_stand_out(theme):
    paper = _luminance(theme.paper)
    for name in ("ink", "soft", "kernel", "peer", "datasheet", "measured"):
        low, high = sorted((paper, _luminance(getattr(theme, name))))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name


def test_in_a_notebook_colours_follow_the_theme_and_nothing_else_is_styled():
    drawn = page(CHARTS["two"])
    body = drawn[drawn.index("<svg") :]
    for colour in vars(LIGHT).values():
        assert not re.search(rf"(?<!, ){colour}", body), colour
    assert "var(--tilelab-kernel, #0064b0)" in body
    assert DARK.kernel in drawn[: drawn.index("<svg")]
    for rules in re.findall(r"<style[^>]*>(.*?)</style>", drawn, re.DOTALL):
        for selector in re.findall(r"([^{}]+)\{", rules):
            assert ".tilelab-chart" in selector


def test_a_students_settings_are_neither_used_nor_changed():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        drawn = svg(CHARTS["two"])
        assert matplotlib.rcParams["font.size"] == 30
    assert drawn == svg(CHARTS["two"])


def test_files_are_written_by_their_names_ending(tmp_path):
    write(CHARTS["two"], tmp_path / "a.svg")
    write(CHARTS["two"], tmp_path / "a.PNG", "dark")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert (tmp_path / "a.PNG").read_bytes() == png(CHARTS["two"], DARK)
    assert png(CHARTS["two"])[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(Unusable, match=r"must end in \.svg or \.png"):
        write(CHARTS["two"], tmp_path / "a.pdf")


def test_the_drawing_library_is_imported_only_to_draw():
    code = "import sys, grader.cli, grader.report.roofline_plot, grader.student.rooflines; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "grader.cli.app" in shown.stdout
    assert "matplotlib" not in shown.stdout.split()


def test_the_roofline_command_draws(notebook, tmp_path):
    path, target = str(notebook("lab02_matmul.ipynb", MATMUL)), tmp_path / "r.svg"
    arguments = ["roofline", path, "--shape", "M=128,N=256,K=64", "--card", "h200", "--plot", str(target)]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    drawn = texts(target.read_text())
    assert "matmul at M = 128, N = 256, K = 64, on H200 SXM" in drawn
    # 2·128·256·64 operations over 2·(128·64 + 64·256 + 128·256) bytes; 4800 GB/s
    assert "at 36.57 operations a byte" in target.read_text()
    assert any(text.startswith("if each byte comes once") and "4800 GB/s" in text for text in drawn)
