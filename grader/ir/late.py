"""Lets that TileLang writes before the loop whose variable they use.

``for bx, by in T.Persistent(...)`` traces to ``bx = …w…; by = …w…; for w in …: body``: TVM takes a let for a name
of its expression, wherever that stands. Read as it is meant, such a let is the first statement of the loop.
"""

from dataclasses import replace

from grader.ir import nodes


def settle(items: tuple[nodes.Stmt, ...]) -> tuple[nodes.Stmt, ...]:
    """The statements of a sequence, with each late let moved into the loop after it that binds its variable."""
    last = {item.var: position for position, item in enumerate(items) if isinstance(item, nodes.For)}
    home: dict[nodes.Var, nodes.Var] = {}  # a late let's variable -> that of the loop it belongs to
    lets: dict[nodes.Var, list[nodes.Bind]] = {}
    kept: list[nodes.Stmt] = []
    for position, item in enumerate(items):
        if isinstance(item, nodes.Bind):
            used = [part for part in nodes.walk(item.value) if isinstance(part, nodes.Var)]
            loop = next((home.get(var, var) for var in used if var in home or last.get(var, -1) > position), None)
            if loop is not None:
                home[item.var] = loop
                lets.setdefault(loop, []).append(item)
                continue
        if isinstance(item, nodes.For) and item.var in lets:
            body = nodes.Seq(item.body.line, (*lets.pop(item.var), item.body))
            item = replace(item, body=body)  # noqa: PLW2901
        kept.append(item)
    return tuple(kept)
