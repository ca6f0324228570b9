"""The record of a run on a card as a page for ``benchmarks/``."""

from .registry import short

HEAD = """# Conformance of the simulator on a card

Every kernel of `tests/conformance` run on the card through TileLang, and compared with float64 and with the
simulator on the same inputs. "error / bound" is the largest distance from float64 as a share of what the dtypes,
the accumulator, the length and the magnitude of sums allow; "card − simulator" likewise, where both may be off;
"same bits" is the share of elements that are equal to the last bit. `python -m tests.conformance --device cuda`.
"""


def page(record: dict) -> str:
    facts, results = record["facts"], record["results"]
    counts: dict[str, int] = {}
    for result in results:
        counts[result["status"]] = counts.get(result["status"], 0) + 1
    said = ", ".join(f"{key} {value}" for key, value in facts.items() if key not in ("card", "date"))
    total = ", ".join(f"{count} {status}" for status, count in counts.items())
    lines = [HEAD, f"## {facts.get('card', 'no card')}, {facts.get('date', '')}", "", f"{said}.", ""]
    lines += [f"{len(results)} cases: {total}.", ""]
    lines += ["| construct | cases | dtypes | right | error / bound | card − simulator | same bits |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    by_construct: dict[str, list[dict]] = {}
    for result in results:
        by_construct.setdefault(result["construct"], []).append(result)
    for construct, found in by_construct.items():
        ran = [result for result in found if result["status"] in ("right", "wrong", "apart", "no simulator")]
        right = sum(result["status"] == "right" for result in found)
        dtypes = " ".join(dict.fromkeys(short(result["dtype"]) for result in found))
        figures = ["", "", ""]
        if ran:
            same = sum(result["identical"] for result in ran) / len(ran)
            figures = [f"{max(r['share'] for r in ran):.2f}", f"{max(r['apart'] for r in ran):.2f}", f"{same:.1%}"]
        lines.append(" | ".join([f"| {construct}", str(len(found)), dtypes, str(right), *figures]) + " |")
    wrong = [result for result in results if result["status"] != "right"]
    if wrong:
        lines += ["", "### Not right", "", "| case | status | why |", "| --- | --- | --- |"]
        for result in wrong:
            why = result["detail"].replace("|", "\\|").replace("\n", " ")
            lines.append(f"| `{result['case']}` | {result['status']} | {why} |")
    return "\n".join(lines) + "\n"
