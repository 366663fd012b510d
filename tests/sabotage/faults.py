"""One realistic fault in one function: what can be wrong in a line, and how it is planted."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
_LOOKS_ALONE = {
    "stacklevel",
    "flush",
    "maxsize",
    "indent",
    "daemon",
    "dpi",
    "figsize",
    "rtol",
    "compression_level",
}
"""Arguments whose value changes speed or looks alone: a fault there is no fault."""


_EITHER_WAY = {
    "isinstance",
    "max",
    "min",
    "zip",
    "corrcoef",
    "maximum",
    "minimum",
    "hypot",
    "isclose",
    "array_equal",
}
"""Functions that say the same of two arguments exchanged, or crash for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault that can be planted: which bytes of the file become which text."""

    function: str
    line: int
    what: str
    start: int
    stop: int
    text: str


def faults_of(source: str) -> list[Fault]:
    """Return every fault that can be planted in the functions of a file."""
    begins = [0]
    for line in source.encode().splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    found = []
    for function in [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]:
        for node in _nodes_of(function):
            for what, old, new in _changes(node):
                text = ast.unparse(new)
                found.append(
                    Fault(
                        function=function.name,
                        line=old.lineno,
                        what=what,
                        start=begins[old.lineno - 1] + old.col_offset,
                        stop=begins[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0),
                        text=f"({text})" if isinstance(new, ast.expr) else text,
                    )
                )
    return found


def planted(source: str, fault: Fault) -> str:
    """Return the file with one fault in it; every other byte stays, comments too."""
    text = source.encode()
    return (text[: fault.start] + fault.text.encode() + text[fault.stop :]).decode()


def _nodes_of(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield what runs: defaults and body, but neither annotations, nor texts, nor what is inside a raise."""
    todo: list[ast.AST] = [
        *function.body,
        *function.args.defaults,
        *(d for d in function.args.kw_defaults if d is not None),
    ]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.FunctionDef | ast.ClassDef | ast.Assert):
            continue
        if isinstance(node, ast.keyword) and node.arg in _LOOKS_ALONE:
            continue
        yield node
        todo += [
            child
            for name, value in ast.iter_fields(node)
            if name not in ("annotation", "returns")
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]


Change = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt]
"""What is wrong, the node, and what stands in its place."""


def _changes(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            other = _COMPARE[type(op)]
            yield f"{other.__name__} for {type(op).__name__}", node, _with(node, ops=[other()])
        case ast.BoolOp(op=op, values=[first, *_]):
            yield "and and or exchanged", node, _with(node, op=_other(op))
            yield "a condition forgotten", node, first
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC and not _is_text(
            left, right
        ):
            wrong = _ARITHMETIC[type(op)]
            yield f"{wrong.__name__} for {type(op).__name__}", node, _with(node, op=wrong())
        case ast.BinOp(op=ast.BitAnd(), left=left):
            yield "a mask forgotten", node, left
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not left out", node, operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "sign left out", node, operand
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "the wrong branch", test, ast.UnaryOp(op=ast.Not(), operand=test)
        case ast.Constant(value=bool(value)):
            yield f"{not value} for {value}", node, ast.Constant(value=not value)
        case ast.Constant(value=int(value)):
            yield f"{value + 1} for {value}", node, ast.Constant(value=value + 1)
        case ast.Constant(value=float(value)):
            wrong_unit = 1000 * value or 1.0
            yield f"{wrong_unit:g} for {value:g}", node, ast.Constant(value=wrong_unit)
        case ast.Call():
            yield from _wrong_arguments(node)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            yield "a wrong key", node.slice, ast.Constant(value=f"{key}_")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "nothing returned", node, ast.Return(value=ast.Constant(value=None))
        case ast.Expr(value=ast.Call()):
            yield "a call left out", node, ast.Pass()
        case ast.AugAssign():
            yield "an update left out", node, ast.Pass()


def _wrong_arguments(node: ast.Call) -> Iterator[Change]:
    for i, given in enumerate(node.keywords):
        if given.arg is not None and given.arg not in _LOOKS_ALONE:
            kept = [*node.keywords[:i], *node.keywords[i + 1 :]]
            yield f"argument {given.arg} left out", node, _with(node, keywords=kept)
    match node.args:
        case [ast.Name() | ast.Attribute() as one, ast.Name() | ast.Attribute() as two, *rest]:
            if getattr(node.func, "id", getattr(node.func, "attr", "")) not in _EITHER_WAY:
                yield "two arguments exchanged", node, _with(node, args=[two, one, *rest])


def _is_text(*operands: ast.expr) -> bool:
    """Return whether an operator joins texts, paths or lists, where another operator would only crash."""
    return any(
        isinstance(n, ast.JoinedStr | ast.List) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for o in operands
        for n in (o, getattr(o, "left", o))
    )


def _other(op: ast.boolop) -> ast.boolop:
    return ast.Or() if isinstance(op, ast.And) else ast.And()


def _with(node: ast.expr, **fields: object) -> ast.expr:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
