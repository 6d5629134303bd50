"""One public name as a section of the reference: docstring, signature, fields, methods."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from ppolm.config.setting import meanings
from scripts.api_page import public_methods, signature

CODE = re.compile(r"(``.+?``|`[^`\n]+`)", re.DOTALL)
BAR = "\\|"
"""A bar within a cell of a table."""
LONGEST = 100
"""Letters of a signature on one line."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field or attribute that users may read."""

    name: str
    type: str
    default: str
    meaning: str


def entry(name: str, thing: Any) -> str:
    """The section of a public name."""
    parts = [f"## {name}\n", f"{described(thing)}\n", f"[source]({_source(thing)})\n"]
    called = signature(thing)
    if not inspect.isclass(thing):
        return "\n".join([*parts, _block(name, called)])
    if not dataclasses.is_dataclass(thing) and not called.startswith("(*"):
        parts += [_block(name, called), *_constructor(thing)]
    return "\n".join([*parts, *_fields(thing), *_methods(name, thing)])


def described(thing: Any) -> str:
    """The docstring as Markdown."""
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    return markdown(inspect.cleandoc(thing.__doc__ or ""))


def markdown(text: str) -> str:
    """A docstring's marks as Markdown's; signs that Markdown would read as its own are kept as they are."""
    parts = CODE.split(text)
    plain = [re.sub(r"([*<\[])", r"\\\1", part) for part in parts[::2]]
    code = [f"`{part.strip('`')}`" for part in parts[1::2]]
    return "".join(one for pair in zip(plain, [*code, ""], strict=True) for one in pair)


def fields(thing: type[Any]) -> list[Field]:
    """Fields of a dataclass that it does not share with a public base, or documented attributes of another class."""
    if not inspect.isclass(thing) or not dataclasses.is_dataclass(thing):
        return list(_attributes(thing))
    own = inspect.get_annotations(thing)
    about = meanings(thing)
    return [
        Field(one.name, _type(one.type), _default(one), about.get(one.name, ""))
        for one in dataclasses.fields(thing)
        if not one.name.startswith("_") and (one.name in own or "setting" not in one.metadata)
    ]


def undescribed(thing: type[Any]) -> list[str]:
    """Fields without a description: those whose class, or whose own docstring, does not mention them either."""
    texts = " ".join(str(part) for part in (thing.__doc__, thing.__init__.__doc__))
    return [one.name for one in fields(thing) if not one.meaning and not re.search(rf"\b{one.name}\b", texts)]


def _fields(thing: Any) -> Iterator[str]:
    found = fields(thing)
    if not found:
        return
    head = ["field", "type", "meaning"]
    if any(one.default for one in found):
        head.insert(2, "default")
    yield f"| {' | '.join(head)} |\n{'|---' * len(head)}|"
    for one in found:
        cells = {"field": _code(one.name), "type": _code(one.type), "default": _code(one.default)}
        cells["meaning"] = markdown(one.meaning)
        yield f"| {' | '.join(cells[name].replace('|', BAR) for name in head)} |"
    yield ""
    shared = [base.__name__ for base in thing.__mro__[1:] if len(found) < len(_all_fields(thing)) and _all_fields(base)]
    if shared:
        yield f"And the fields of {' and '.join(map(_code, shared))}.\n"


def _all_fields(thing: Any) -> tuple[Any, ...]:
    return dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _methods(name: str, thing: Any) -> Iterator[str]:
    for method, member in public_methods(thing).items():
        yield f"### {name}.{method}\n"
        if isinstance(member, property):
            yield f"{described(member)} (a property)\n"
        else:
            yield f"{_block(method, signature(member))}\n{described(member)}\n"


def _constructor(thing: Any) -> list[str]:
    """What the docstring of ``__init__`` says about its arguments."""
    text = vars(thing).get("__init__", None)
    return [f"{described(text)}\n"] if text is not None and text.__doc__ else []


def _attributes(thing: Any) -> Iterator[Field]:
    """Attributes that ``__init__`` sets and describes in the line below."""
    init = vars(thing).get("__init__")
    if not inspect.isfunction(init):
        return
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(init))).body
    assert isinstance(body, ast.FunctionDef)
    for statement, after in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            continue
        kind, target = "", statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.AnnAssign):
            kind, target = ast.unparse(statement.annotation), statement.target
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            yield Field(target.attr, kind, "", " ".join(str(after.value.value).split()))


def _source(thing: Any) -> str:
    """The file where it is defined."""
    return f"../src/{thing.__module__.replace('.', '/')}.py"


def _type(kind: Any) -> str:
    return str(kind if isinstance(kind, str) else getattr(kind, "__name__", kind)).replace("'", "")


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return repr(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return f"{getattr(field.default_factory, '__name__', '...')}()"
    return ""


def _block(name: str, called: str) -> str:
    return f"```python\n{name}{_folded(called)}\n```\n"


def _folded(called: str) -> str:
    """A long signature with one line per argument."""
    if len(called) < LONGEST:
        return called
    inside, _, after = called[1:].rpartition(")")
    depth, parts, start = 0, [], 0
    for i, sign in enumerate(inside):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(inside[start:i].strip())
            start = i + 1
    return "(\n" + "".join(f"    {part},\n" for part in [*parts, inside[start:].strip()]) + f"){after}"
