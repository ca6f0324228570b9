"""Verdicts in a notebook: an HTML table that reads well in light and dark themes and without colour."""

from html import escape

from grader.messages import _
from grader.report import words
from grader.verdict import Check, Finding, Outcome, Verdict

_STYLE = """
<style>
.tilelab { font-family: var(--jp-ui-font-family, sans-serif); font-size: 14px; line-height: 1.5;
  max-width: 58rem; }
.tilelab table { border-collapse: collapse; table-layout: auto; width: 100%; margin: .4em 0; }
.tilelab td:not(:first-child), .tilelab th:not(:first-child) { width: 1%; }
.tilelab th, .tilelab td { text-align: left !important; vertical-align: top; padding: .45em .8em;
  border-bottom: 1px solid var(--jp-border-color2, #bbb); white-space: normal; }
.tilelab td:last-child, .tilelab th:last-child { text-align: right !important; white-space: nowrap; }
.tilelab .mark { white-space: nowrap; font-weight: 600; }
.tilelab .passed { color: #1a7f37; } .tilelab .failed { color: #c62828; } .tilelab .open { color: #8a6d00; }
[data-jp-theme-light="false"] .tilelab .passed { color: #57c26f; }
[data-jp-theme-light="false"] .tilelab .failed { color: #ff8a80; }
[data-jp-theme-light="false"] .tilelab .open { color: #e0c050; }
.tilelab .finding { margin-top: .35em; }
.tilelab code { display: block; margin: .2em 0; padding: .2em .5em; overflow-x: auto;
  background: var(--jp-layout-color2, #eee); color: inherit; white-space: pre-wrap; }
.tilelab .where, .tilelab .evidence { opacity: .85; font-size: 13px; }
.tilelab .advice::before { content: "→ "; }
</style>
"""

_CLASS = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.INCONCLUSIVE: "open",
    Outcome.NOT_ASSESSED: "open",
}


def render(verdict: Verdict) -> str:
    rows = "".join(_row(check, findings) for check, findings in words.told(verdict))
    notes = "".join(f'<div class="finding">{_("Note")}: {_finding(note)}</div>' for note in verdict.notes)
    title = _("Judged on the {device}").format(device=verdict.device)
    return (
        f'{_STYLE}<div class="tilelab"><table><caption style="text-align:left">{escape(title)}</caption>'
        f"<thead><tr><th>{_('check')}</th><th>{_('verdict')}</th><th>{_('points')}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>{notes}<strong>{escape(words.summary(verdict))}</strong></div>"
    )


def render_finding(finding: Finding) -> str:
    return f'{_STYLE}<div class="tilelab">{_finding(finding)}</div>'


def _row(check: Check, findings: tuple[Finding, ...]) -> str:
    figures = "".join(f'<div class="evidence">{escape(words.figures(item))}</div>' for item in check.figures)
    told = "".join(_finding(finding) for finding in findings)
    return (
        f"<tr><td>{escape(check.title)}{figures}{told}</td>"
        f'<td class="mark {_CLASS[check.outcome]}">{escape(words.outcome(check))}</td>'
        f"<td>{escape(words.points(check))}</td></tr>"
    )


def _finding(finding: Finding) -> str:
    parts = [f'<div class="finding">{escape(finding.message)}</div>']
    if finding.where is not None:
        parts.append(f'<div class="where">{escape(str(finding.where))}</div>')
        if finding.where.text:
            parts.append(f"<code>{escape(finding.where.text)}</code>")
    parts += [f'<div class="evidence">{escape(item)}</div>' for item in finding.evidence]
    if finding.advice:
        parts.append(f'<div class="advice">{escape(finding.advice)}</div>')
    return "".join(parts)
