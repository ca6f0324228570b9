"""Draws a roofline chart: as SVG or PNG, light or dark, and as a piece of HTML that follows a notebook's theme.

A work's points stand on one thin line, with one label beside it that names each by its shape. Roofs are dashed
where they come from a datasheet, and drawn through where they were measured. The drawing library is imported only
when something is drawn; nothing of it is shared with what a student draws in the same process.
"""

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from grader.messages import _
from grader.report.label_layout import Box, Label, Segment, place
from grader.verdict import Unusable
from grader.verdict.chart import Chart, Point, Role, Roof, Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, LARGE = (10.0, 5.8), (12.5, 7.6)  # inches, by the number of works
MANY = 5  # works, from which on the chart is large
LEFT, RIGHT, BOTTOM, TOP = (
    0.75,
    1.95,
    0.6,
    0.5,
)  # of the axes, in inches from the edges; roofs are named at the right
FONT = "DejaVu Sans"  # comes with the drawing library
FONTS = "'DejaVu Sans', Verdana, sans-serif"  # for readers: Verdana is as wide, most others are narrower
TEXT, TITLE = 9.0, 12.0  # points
ROW = 0.175  # of a label, in inches
GLYPH = 0.2  # the room of a shape in a label
PNG_DPI = 160

#: The kernel is a filled circle. Peers are open, so that they can stand around it.
KERNEL_SHAPE, BOUND_SHAPES = "o", ("v", "^")
PEER_SHAPES = ("s", "D", "^", "v", "p", "h")


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for. All differ, so that each can be found again in the SVG's text."""

    paper: str
    ink: str
    soft: str
    grid: str
    kernel: str
    peer: str
    datasheet: str
    measured: str


# Blue and orange are told apart by every kind of colour vision, and differ in lightness on paper.
LIGHT = Theme("#ffffff", "#1b1b1e", "#55555e", "#e6e6ea", "#0064b0", "#ad4d00", "#6c6c76", "#333338")
DARK = Theme("#17171a", "#ededf0", "#b4b4be", "#303036", "#62b5f5", "#f2a03d", "#95959f", "#d0d0d6")
THEMES = {"light": LIGHT, "dark": DARK}


def write(chart: Chart, path: Path, theme: str = "light") -> None:
    """Writes the chart to a file, .svg or .png. Raises Unusable for any other, and OSError."""
    writers: dict[str, Callable[[Chart, Theme], str | bytes]] = {".svg": svg, ".png": png}
    check_name(path)
    drawn = writers[path.suffix.lower()](chart, THEMES[theme])
    path.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)


def check_name(path: Path) -> None:
    """Raises Unusable if ``write`` can't write there: to be asked before anything is measured."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise Unusable(_("'{path}' must end in .svg or .png.").format(path=path))


def svg(chart: Chart, theme: Theme = LIGHT) -> str:
    """An SVG document, with the chart in words for those who can't see it."""
    with _own_settings():
        figure = _figure(chart, theme)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue().replace(f"'{FONT}'", FONTS)
    start = re.search(r"<svg\b", text)
    if start is None:
        raise ValueError("the drawing library wrote no SVG")
    end = text.index(">", start.end())
    words = f"<title>{escape(chart.title)}</title>\n<desc>{escape(describe(chart))}</desc>\n"
    return f'{text[: start.end()]} role="img"{text[start.end() : end + 1]}\n{words}{text[end + 1 :]}'


def png(chart: Chart, theme: Theme = LIGHT) -> bytes:
    with _own_settings():
        out = io.BytesIO()
        _figure(chart, theme).savefig(
            out, format="png", dpi=PNG_DPI, metadata={"Title": chart.title, "Description": describe(chart)}
        )
    return out.getvalue()


def page(chart: Chart) -> str:
    """A piece of HTML for a notebook, in the colours of its theme."""
    text = svg(chart, LIGHT)
    text = text[re.search(r"<svg\b", text).start() :]
    text = text.replace('<style type="text/css">*{', '<style type="text/css">.tilelab-chart *{')  # not the page's
    light, dark = [], []
    for item in fields(Theme):
        colour, name = getattr(LIGHT, item.name), f"--tilelab-{item.name}"
        text = text.replace(colour, f"var({name}, {colour})")
        light.append(f"{name}: {colour};")
        dark.append(f"{name}: {getattr(DARK, item.name)};")
    return (
        f"<style>.tilelab-chart {{ {' '.join(light)} }}\n"
        f'[data-jp-theme-light="false"] .tilelab-chart {{ {" ".join(dark)} }}\n'
        f".tilelab-chart svg {{ max-width: 100%; height: auto; }}</style>"
        f'<div class="tilelab-chart">{text}</div>'
    )


def describe(chart: Chart) -> str:
    """The chart in words: every roof, and every point with its place below the roof."""
    lines = [
        _("Roofline chart: operations a second (TFLOP/s) over operations a byte, both logarithmic."),
        *(_roof_words(roof, ": ") + "." for roof in chart.roofs),
    ]
    for work in chart.works:
        for point in work.points:
            height = chart.height(point.intensity)
            share = (
                "" if math.isinf(height) else _(", {share:.0%} of the roof").format(share=point.tflops / height)
            )
            lines.append(
                _("{work}: {name}, {figure}, at {intensity:.4g} operations a byte{share}.").format(
                    work=work.title, name=point.name, figure=point.figure, intensity=point.intensity, share=share
                )
            )
    return "\n".join([*lines, *chart.left_out])


@contextmanager
def _own_settings() -> Iterator[None]:
    """The library's defaults, whatever a student has set; theirs are back afterwards."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",  # text stays text: to be searched, read aloud, scaled
                "svg.hashsalt": "tilelab",  # the same chart gives the same file
                "font.family": FONT,
                "font.size": TEXT,
                "axes.unicode_minus": False,
                "text.parse_math": False,  # a name with dollars is a name
            }
        )
        yield


# Drawing. Texts and marks of labels are placed in inches, since their sizes are.


def _figure(chart: Chart, theme: Theme) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = LARGE if len(chart.works) >= MANY else SMALL
    figure = Figure(figsize=size, dpi=100, facecolor=theme.paper)
    FigureCanvasAgg(figure)
    width, height = size
    axes = figure.add_axes(
        (LEFT / width, BOTTOM / height, (width - LEFT - RIGHT) / width, (height - BOTTOM - TOP) / height)
    )
    x, y = _limits(chart)
    _style(axes, chart, theme, x, y)
    drawing = _Drawing(figure, axes, chart, theme)
    drawing.roofs()
    drawing.works()
    drawing.left_out()
    return figure


def _limits(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges that hold every point and every place where the roof bends, with air around."""
    xs = [point.intensity for point in chart.points]
    ys = [point.tflops for point in chart.points]
    memory = max((roof.rate for roof in chart.roofs if roof.memory), default=None)
    for roof in chart.roofs:
        if not roof.memory:
            ys.append(roof.rate)
            if memory is not None:
                xs.append(roof.rate * 1e3 / memory)
    if not xs or not ys:
        raise Unusable(_("There is nothing to draw: no roof is known, and nothing has operations."))
    x = _wide(min(xs) / 4, max(xs) * 25, 3.5)  # labels stand to the right of points
    if memory is not None:
        ys.append(max(min(ys) / 3, x[0] * memory / 1e3))
    return x, _wide(min(ys) / 4, max(ys) * 2.5, 2.5)


def _wide(low: float, high: float, decades: float) -> tuple[float, float]:
    """At least so many decades."""
    missing = decades - math.log10(high / low)
    return (low, high) if missing <= 0 else (low / 10 ** (missing / 2), high * 10 ** (missing / 2))


def _style(axes: "Axes", chart: Chart, theme: Theme, x: tuple[float, float], y: tuple[float, float]) -> None:
    axes.set(xscale="log", yscale="log", xlim=x, ylim=y, facecolor=theme.paper)
    axes.set_title(chart.title, loc="left", fontsize=TITLE, fontweight="bold", color=theme.ink, pad=10)
    axes.set_xlabel(_("operations a byte of global memory"), color=theme.ink, fontsize=TEXT + 1)
    axes.set_ylabel(_("TFLOP/s"), color=theme.ink, fontsize=TEXT + 1)
    axes.grid(True, which="major", color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.tick_params(colors=theme.soft, labelcolor=theme.ink, length=3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _position: f"{value:,.10g}")
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.soft)


class _Drawing:
    def __init__(self, figure: "Figure", axes: "Axes", chart: Chart, theme: Theme) -> None:
        self.figure = figure
        self.axes = axes
        self.chart = chart
        self.theme = theme
        self.inches = figure.dpi_scale_trans
        width, height = figure.get_size_inches()
        self.region = Box(LEFT, BOTTOM, width - RIGHT, height - TOP)
        self.shapes = _shapes(chart.works)
        self.taken: list[Box] = []
        self.lines: list[Segment] = []
        self.marks = [self.at(point.intensity, point.tflops) for point in chart.points]

    def at(self, intensity: float, tflops: float) -> tuple[float, float]:
        """A point's place in inches."""
        x, y = self.axes.transData.transform((intensity, tflops)) / self.figure.dpi
        return float(x), float(y)

    def text(self, x: float, y: float, words: str, **style) -> None:
        """Draws a text at a place in inches."""
        style = {"fontsize": TEXT, "color": self.theme.ink} | style
        self.figure.text(x, y, words, transform=self.inches, **style)

    def size(self, words: str, **style) -> tuple[float, float]:
        """Width and height of a text in inches."""
        drawn = self.figure.text(0, 0, words, transform=self.inches, **({"fontsize": TEXT} | style))
        extent = drawn.get_window_extent(self.figure.canvas.get_renderer())
        drawn.remove()
        return extent.width / self.figure.dpi, extent.height / self.figure.dpi

    def line(self, xs: Sequence[float], ys: Sequence[float], **style) -> None:
        from matplotlib.lines import Line2D

        self.figure.add_artist(Line2D(xs, ys, transform=self.inches, **style))

    def paper(self, box: Box) -> None:
        """Ends what would run through a label."""
        from matplotlib.patches import Rectangle

        size = (box.x1 - box.x0, box.y1 - box.y0)
        self.figure.add_artist(
            Rectangle((box.x0, box.y0), *size, transform=self.inches, color=self.theme.paper, linewidth=0)
        )

    # Roofs

    def roofs(self) -> None:
        memory = [roof for roof in self.chart.roofs if roof.memory]
        operations = [roof for roof in self.chart.roofs if not roof.memory]
        steepest = max((roof.rate for roof in memory), default=None)
        low, high = self.axes.get_xlim()
        bends = [low if steepest is None else roof.rate * 1e3 / steepest for roof in operations]
        ends = [(roof, self.draw_roof(roof, bend, high)) for roof, bend in zip(operations, bends, strict=True)]
        self.name_level([(roof, line.y1) for roof, line in ends])
        top = max((roof.rate for roof in operations), default=self.axes.get_ylim()[1])
        for roof in memory:
            self.sloped(roof, top, [(line.x0, line.y0) for _roof, line in ends])

    def draw_roof(self, roof: Roof, low: float, high: float) -> Segment:
        style = {"color": self.theme.measured, "linewidth": 1.6}
        if not roof.measured:
            style = {"color": self.theme.datasheet, "linewidth": 1.2, "linestyle": (0, (5, 3))}
        self.axes.plot([low, high], [roof.tflops(low), roof.tflops(high)], **style)
        segment = Segment(*self.at(low, roof.tflops(low)), *self.at(high, roof.tflops(high)))
        self.lines.append(segment)
        return segment

    def sloped(self, roof: Roof, top: float, bends: list[tuple[float, float]]) -> None:
        """The memory's, up to the highest roof of operations; its name along it where least is in the way."""
        low = max(self.axes.get_xlim()[0], self.axes.get_ylim()[0] * 1e3 / roof.rate)
        line = self.draw_roof(roof, low, top * 1e3 / roof.rate)
        angle = math.atan2(line.y1 - line.y0, line.x1 - line.x0)
        length = math.hypot(line.x1 - line.x0, line.y1 - line.y0)
        words, away = _roof_words(roof, ": "), 0.05 if not roof.measured else -0.05
        style = {"rotation": math.degrees(angle), "rotation_mode": "anchor", "ha": "center"}
        style |= {"va": "top" if roof.measured else "bottom", "color": self.roof_colour(roof)}
        width, height = self.size(words)
        places = [width / 2 + 0.1 + i * 0.1 for i in range(max(1, int((length - width - 0.2) / 0.1)))]

        def along(distance: float) -> tuple[float, float]:
            return line.x0 + distance * math.cos(angle), line.y0 + distance * math.sin(angle)

        def crowd(middle: float) -> float:
            """How near marks and bends are to a text there."""
            steps = [along(middle + width * (i / 8 - 0.5)) for i in range(9)]
            return sum(
                1 / (0.05 + max(0.0, min(math.hypot(x - px, y - py) for x, y in steps) - 0.2))
                for px, py in (*self.marks, *bends)
            )

        x, y = along(min(places, key=lambda place: (round(crowd(place)), abs(place - length * 0.4))))
        off_x, off_y = -math.sin(angle) * away, math.cos(angle) * away
        self.text(x + off_x, y + off_y, words, **style)
        middle = height / 2 / abs(away) + 1  # from the line to the middle of the text, in units of the offset
        for i in range(13):
            distance = width * (i / 12 - 0.5)
            cx = x + distance * math.cos(angle) + off_x * middle
            cy = y + distance * math.sin(angle) + off_y * middle
            half = height / 2
            self.taken.append(Box(cx - half, cy - half, cx + half, cy + half))

    def name_level(self, ends: list[tuple[Roof, float]]) -> None:
        """Names of the roofs of operations at their right ends, outside, moved apart where they would touch."""
        ends = sorted(ends, key=lambda end: end[1])
        heights = [y for _roof, y in ends]
        gap = 2 * ROW + 0.06
        for _turn in range(100):
            for i in range(len(heights) - 1):
                short = gap - (heights[i + 1] - heights[i])
                if short > 0:
                    heights[i], heights[i + 1] = heights[i] - short / 2, heights[i + 1] + short / 2
        for (roof, end), y in zip(ends, heights, strict=True):
            x, colour = self.region.x1, self.roof_colour(roof)
            self.line((x + 0.03, x + 0.18), (end, y), color=colour, linewidth=0.7)
            self.text(x + 0.22, y, _roof_words(roof, "\n"), va="center", color=colour, linespacing=1.15)

    def roof_colour(self, roof: Roof) -> str:
        return self.theme.measured if roof.measured else self.theme.datasheet

    # Works

    def works(self) -> None:
        for work in self.chart.works:
            self.stem(work)
        for work in self.chart.works:
            for point in work.points:
                self.mark(point, self.shapes[work.title, point.name], *self.at(point.intensity, point.tflops))
        labels = [self.label(work) for work in self.chart.works]
        inside = self.region.padded(-0.05)
        boxes = place(labels, inside, taken=self.taken, marks=self.marks, lines=self.lines)
        for work, label, box in zip(self.chart.works, labels, boxes, strict=True):
            self.leader(label, box)
            self.write_label(work, box)

    def stem(self, work: Work) -> None:
        """The thin line on which a work's points stand."""
        points = sorted(work.points, key=lambda point: (point.intensity, point.tflops))
        xs, ys = zip(*(self.at(point.intensity, point.tflops) for point in points), strict=True)
        self.line(xs, ys, color=self.theme.soft, linewidth=0.8)
        for i in range(len(points) - 1):
            self.lines.append(Segment(xs[i], ys[i], xs[i + 1], ys[i + 1]))

    def mark(self, point: Point, shape: str, x: float, y: float) -> None:
        filled = point.role is Role.KERNEL
        colour = self.theme.peer if point.role is Role.PEER else self.theme.kernel
        self.line(
            [x],
            [y],
            marker=shape,
            markersize=5.5 if filled else 8.5,
            markerfacecolor=colour if filled else "none",
            markeredgecolor=colour,
            markeredgewidth=1.3,
            linestyle="none",
            zorder=4 if filled else 3,
        )

    def rows(self, work: Work) -> list[tuple[Point, str]]:
        return [(point, f"{point.name}  {point.figure}") for point in work.points]

    def label(self, work: Work) -> Label:
        widths = [self.size(work.title, fontweight="bold")[0]]
        widths += [GLYPH + self.size(words)[0] for _point, words in self.rows(work)]
        marks = tuple(self.at(point.intensity, point.tflops) for point in work.points)
        return Label(max(widths), ROW * (len(work.points) + 1), marks)

    def write_label(self, work: Work, box: Box) -> None:
        self.paper(box)
        y = box.y1 - ROW / 2
        self.text(box.x0, y, work.title, fontweight="bold", va="center_baseline")
        for point, words in self.rows(work):
            y -= ROW
            self.mark(point, self.shapes[work.title, point.name], box.x0 + 0.07, y)
            self.text(box.x0 + GLYPH, y, words, va="center_baseline")

    def left_out(self) -> None:
        """What has no place in the chart, below the roofs' names."""
        lines = [line for text in self.chart.left_out for line in textwrap.wrap(text, 27)]
        self.text(self.region.x1 + 0.22, self.region.y0, "\n".join(lines), color=self.theme.soft, linespacing=1.15)

    def leader(self, label: Label, box: Box) -> None:
        """From the nearest point to the label, with a rule along the side where it arrives; none if they touch."""
        wide = box.padded(0.04)
        x, y = label.mark(box)
        to_x, to_y = wide.nearest(x, y)
        distance = math.hypot(to_x - x, to_y - y)
        if distance < 0.12:
            return
        free = 0.08 / distance  # not into the mark
        style = {"color": self.theme.soft, "linewidth": 0.7, "zorder": 0.5}  # below the paper of other labels
        self.line((x + (to_x - x) * free, to_x), (y + (to_y - y) * free, to_y), **style)
        if to_x in (wide.x0, wide.x1):
            self.line((to_x, to_x), (wide.y0, wide.y1), **style)
        else:
            self.line((wide.x0, wide.x1), (to_y, to_y), **style)


def _roof_words(roof: Roof, between: str) -> str:
    if roof.memory:
        rate = _("{rate:.3g} TB/s").format(rate=roof.rate / 1e3)
    else:
        rate = _("{rate:.4g} TFLOP/s").format(rate=roof.rate)
    text = _("{rate}, measured") if roof.measured else _("{rate}, datasheet")
    return roof.name + between + text.format(rate=rate)


def _shapes(works: Sequence[Work]) -> dict[tuple[str, str], str]:
    """A shape for each point: a library keeps its own over the whole chart, as long as there are enough."""
    of_name: dict[str, str] = {}
    shapes: dict[tuple[str, str], str] = {}
    for work in works:
        used: set[str] = set()
        for number, point in enumerate(work.points):
            if point.role is Role.KERNEL:
                shape = KERNEL_SHAPE
            elif point.role is Role.BOUND:
                shape = BOUND_SHAPES[number % len(BOUND_SHAPES)]
            else:
                shape = of_name.setdefault(point.name, PEER_SHAPES[len(of_name) % len(PEER_SHAPES)])
                if shape in used:
                    shape = next((other for other in PEER_SHAPES if other not in used), shape)
            used.add(shape)
            shapes[work.title, point.name] = shape
    return shapes
