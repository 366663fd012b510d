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
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault that can be planted, by its place in :func:`faults_of`."""

    index: int
    function: str
    line: int
    what: str


def faults_of(source: str) -> list[Fault]:
    """Return every fault that can be planted in the functions of a file."""
    return [
        Fault(index=i, function=function.name, line=getattr(node, "lineno", function.lineno), what=what)
        for i, (function, node, what, _) in enumerate(_all(ast.parse(source)))
    ]


def planted(source: str, fault: Fault) -> str:
    """Return the file with one fault in it."""
    tree = ast.parse(source)
    _, node, _, changed = next(row for i, row in enumerate(_all(tree)) if i == fault.index)

    class Plant(ast.NodeTransformer):
        def visit(self, here: ast.AST) -> ast.AST:
            return ast.copy_location(changed, here) if here is node else super().generic_visit(here)

    return ast.unparse(ast.fix_missing_locations(Plant().visit(tree)))


def _all(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.AST, str, ast.AST]]:
    for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]:
        if function.name == "to_json" or _is_declaration(function):
            continue
        for node in _nodes_of(function):
            for what, changed in _changes(node):
                yield function, node, what, changed


def _is_declaration(function: ast.FunctionDef) -> bool:
    """Return whether a function holds a docstring or an ellipsis alone, as in a protocol."""
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in function.body)


def _nodes_of(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield what runs: neither annotations, nor texts, nor what is inside a raise."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.FunctionDef | ast.ClassDef | ast.Assert):
            continue
        yield node
        todo += [
            child
            for name, value in ast.iter_fields(node)
            if name not in ("annotation", "returns")
            for child in _children(value)
        ]


def _children(value: object) -> list[ast.AST]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)]


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield (what is wrong, the node with it)."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARE:
            yield (
                f"{_COMPARE[type(op)].__name__} for {type(op).__name__}",
                _with(node, ops=[_COMPARE[type(op)]()]),
            )
        case ast.BoolOp(op=op):
            yield "and and or exchanged", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            yield (
                f"{_ARITHMETIC[type(op)].__name__} for {type(op).__name__}",
                _with(node, op=_ARITHMETIC[type(op)]()),
            )
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not left out", operand
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "sign left out", operand
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "the wrong branch", _with(node, test=ast.UnaryOp(op=ast.Not(), operand=test))
        case ast.Constant(value=bool(value)):
            yield f"{not value} for {value}", ast.Constant(value=not value)
        case ast.Constant(value=int(value)):
            yield f"{value + 1} for {value}", ast.Constant(value=value + 1)
        case ast.Constant(value=float(value)):
            yield f"{2 * value + 1} for {value}", ast.Constant(value=2 * value + 1)
        case ast.Return(value=value) if value is not None and not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield "nothing returned", ast.Return(value=ast.Constant(value=None))
        case ast.Expr(value=ast.Call()):
            yield "a call left out", ast.Pass()
        case ast.AugAssign():
            yield "an update left out", ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
