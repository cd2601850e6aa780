"""The text form of every configuration: `name`, `name:value`, `name:key=value,key=value`.

    parse(text, registry, kind)  →  the value             pgd:steps=20,step_size=1/4   →  PGD(steps=20, step_size=0.25)
    text(value)                  →  defaults left out     PGD(steps=20)                →  pgd:steps=20
    full(value)                  →  defaults filled in    goes into a cell's key

Options that a class names in `later` were added after results were stored. `full` leaves them out at their defaults, so
that stored cells keep their keys.

The options of a name are the parameters of its class or loader, read according to their annotations. Items without `=`
fill the first parameters in order (`linf:8/255`, `compact:trades`). A fraction is a number. Tuples are joined by `+`. A
value that is a spec itself, or holds any of `,=+()`, is put in brackets: `transfer:attack=(pgd:steps=20,restarts=5)`.
`parse(text(value)) == value` for every registered class (by test).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any  # specs hold values of any option type; each is checked against its annotation when read

from torch import nn

from antiadv.core.errors import BadSpec

MOST_CHARACTERS, DEEPEST_BRACKETS, INTEGER_LIMIT = 10_000, 20, 2**63

Factory = Callable[..., Any]
Registry = Mapping[str, Factory]


@dataclasses.dataclass(frozen=True)
class Spec:
    """A spec that was read but not built: a name, its class or loader, and every option with its value."""

    name: str
    factory: Factory
    options: Mapping[str, Any]
    given: frozenset[str] = frozenset()  # the options that the text gave

    def build(self, *args: Any) -> Any:
        return self.factory(*args, **self.options)

    def text(self, *, defaults: bool = False, leave_out: tuple[str, ...] = ()) -> str:
        known, later = parameters(self.factory), getattr(self.factory, "later", ())
        shown = [
            f"{key}={show(value, defaults=defaults)}"
            for key, value in self.options.items()
            if key not in leave_out
            and ((defaults and key not in later) or key not in known or not _same(value, known[key].default))
        ]
        return self.name + (":" + ",".join(shown) if shown else "")


@dataclasses.dataclass(frozen=True)
class Parameter:
    annotation: Any
    default: Any  # inspect.Parameter.empty when there is none


def name_of(cls: Factory) -> str:
    """HopSkipJump → hop_skip_jump, PGD → pgd: the name under which a class or loader is registered."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__)
    return name.lower()


@functools.cache  # a store of many cells reads the same few signatures often
def parameters(factory: Factory) -> Mapping[str, Parameter]:
    """The options that a text may give. A network (`base`) is passed by position and has no text."""
    target = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    hints = typing.get_type_hints(target)
    return {
        p.name: Parameter(hints.get(p.name, str), p.default)
        for p in inspect.signature(factory).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and hints.get(p.name) is not nn.Module
    }


def read(text: str, registry: Registry, kind: str) -> Spec:
    """Read a text. The name and every option must be known, and every value of the right type."""
    _check_size(text, kind)
    name, _, rest = text.strip().partition(":")
    if name not in registry:
        raise BadSpec(f"unknown {kind} {name!r}; {_known(name, registry)}")
    factory, known = registry[name], parameters(registry[name])
    given: dict[str, Any] = {}
    named = False
    for position, item in enumerate(_split(rest, ",", text) if rest else []):
        key, equals, value = _cut_equals(item)
        named = named or bool(equals)
        if not equals:
            if named or position >= len(known):
                plain = f"{text!r}: {item!r} is not key=value; options of {name} are {_list(known)}"
                raise BadSpec(plain + _brackets(name, rest, known))
            key, value = list(known)[position], item
        if key not in known:
            plain = f"{text!r}: {kind} {name} has no option {key!r}; {_known(key, known)}"
            raise BadSpec(plain + _brackets(name, rest, known))
        if key in given:
            raise BadSpec(f"{text!r}: option {key!r} is given twice; give it once")
        given[key] = _value(value, known[key].annotation, registry, kind, f"{text!r}: option {key}")
    for key, parameter in known.items():
        if key not in given and parameter.default is inspect.Parameter.empty:
            raise BadSpec(f"{text!r}: {kind} {name} needs {key}; write {name}:{key}=…")
    return Spec(name, factory, {k: given.get(k, p.default) for k, p in known.items()}, frozenset(given))


def parse(text: str, registry: Registry, kind: str, *args: Any) -> Any:
    """Text to value. `args` have no text form, such as the network that a defence wraps."""
    spec = read(text, registry, kind)
    try:
        return spec.build(*args)
    except TypeError as error:  # for example a missing positional argument
        raise BadSpec(f"{text!r} cannot be built: {error}") from error


def spec_of(value: Any) -> Spec:
    """The spec of a value. Its options are its attributes, as in a frozen dataclass or a defence."""
    cls: Factory = type(value)
    return Spec(name_of(cls), cls, {key: getattr(value, key) for key in parameters(cls)})


def text(value: Any) -> str:
    """The shortest text of a value: options at their defaults are left out."""
    return spec_of(value).text()


def full(value: Any) -> str:
    """The text of a value with all its options."""
    return spec_of(value).text(defaults=True)


def number(text: str) -> float:
    """`0.15`, `8/255`, `1e-3` or `inf`."""
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        raise BadSpec(f"{text!r} is not a number; write 0.03 or 8/255") from None
    if math.isnan(value):
        raise BadSpec(f"{text!r} is not a number; write 0.03 or 8/255")
    return value


def show_number(value: float) -> str:
    """The shortest text that reads back as exactly this number: 8/255 rather than 0.03137254901960784."""
    plain = repr(value).replace("e+", "e")
    if abs(value) < 1e6:
        pixels = round(value * 255)
        fraction = f"{pixels}/255"
        if pixels / 255 == value and len(fraction) < len(plain):
            return fraction
    return plain[:-2] if plain.endswith(".0") else plain


# ---------------------------------------------------------------- text of one option


def show(value: Any, *, defaults: bool = False) -> str:
    """The text of one option."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return show_number(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return f"({value})" if re.search(r"[,=+()]", value) else value
    if isinstance(value, tuple):
        items = (show(v, defaults=defaults) for v in value)
        return "+".join(items) if len(value) > 1 else f"{next(items, '')}+"
    inner = spec_of(value).text(defaults=defaults)
    return f"({inner})" if ":" in inner else inner


def _value(text: str, annotation: Any, registry: Registry, kind: str, where: str) -> Any:
    """Read the text of one option according to its annotation."""
    origin: Any = typing.get_origin(annotation)
    inner = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        if type(None) in inner and text == "none":
            return None
        members = [a for a in inner if a is not type(None)]
        is_tuple = "+" in _flat(text)
        members.sort(key=lambda a: _is_tuple(a) != is_tuple)
        return _value(text, members[0], registry, kind, where)
    if origin is typing.Literal:
        if text not in map(str, inner):
            raise BadSpec(f"{where} is one of {', '.join(map(str, inner))}; found {text!r}")
        return next(a for a in inner if str(a) == text)
    if origin is tuple:
        items = [i for i in _split(text, "+", where) if i]
        return tuple(_value(i, inner[0], registry, kind, where) for i in items)
    if annotation in _READERS:
        return _READERS[annotation](text, where)
    return parse(_strip(text), registry, kind)


def _bool(text: str, where: str) -> bool:
    if text not in ("true", "false"):
        raise BadSpec(f"{where} is true or false; found {text!r}")
    return text == "true"


def _whole(text: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?\d+(_\d+)*", text):
        raise BadSpec(f"{where} is a whole number; found {text!r}")
    digits = text.lstrip("+-").replace("_", "").lstrip("0") or "0"
    if len(digits) > len(str(INTEGER_LIMIT)) or int(digits) >= INTEGER_LIMIT:
        raise BadSpec(f"{where} must be less than 2^63 in size; found a number of {len(digits)} digits")
    return -int(digits) if text.startswith("-") else int(digits)


def _float(text: str, where: str) -> float:
    try:
        return number(text)
    except BadSpec as error:
        raise BadSpec(f"{where}: {error}") from None


_READERS: dict[Any, Callable[[str, str], Any]] = {
    bool: _bool,
    int: _whole,
    float: _float,
    str: lambda text, where: _strip(text),
}


def _check_size(text: str, kind: str) -> None:
    """Refuse very long texts, before they reach Python's limits on digits and recursion."""
    if len(text) > MOST_CHARACTERS:
        raise BadSpec(
            f"the text of a {kind} has at most {MOST_CHARACTERS:,} characters; found {len(text):,}. Shorten it."
        )
    depth = max(itertools.accumulate((c == "(") - (c == ")") for c in text), default=0)
    if depth > DEEPEST_BRACKETS:
        raise BadSpec(
            f"brackets in a {kind} are nested at most {DEEPEST_BRACKETS} deep; found {depth}. Leave some out."
        )


def _is_tuple(annotation: Any) -> bool:
    origin: Any = typing.get_origin(annotation)
    return origin is tuple


def _strip(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _flat(text: str) -> str:
    """The text with everything in brackets removed."""
    out, depth = [], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth == 0 and c != ")":
            out.append(c)
    return "".join(out)


def _split(text: str, mark: str, where: str) -> list[str]:
    """Split at marks outside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            break
        if c == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    if depth:
        raise BadSpec(f"{where!r} has brackets that do not match; close every '('")
    return parts


def _cut_equals(item: str) -> tuple[str, str, str]:
    key, equals, value = item.partition("=")
    return (key.strip(), equals, value.strip()) if "(" not in key else (item, "", "")


def _same(value: Any, default: Any) -> bool:
    return default is not inspect.Parameter.empty and type(value) is type(default) and bool(value == default)


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names) or "none"


def _brackets(name: str, rest: str, known: Mapping[str, Parameter]) -> str:
    """A hint where the first option is a path, which may hold = and commas itself."""
    if next(iter(known), None) != "path":
        return ""
    return f". If this is one path with = or a comma in it, put it into brackets: {name}:({rest})"


def _known(word: str, names: Mapping[str, Any]) -> str:
    """The known names, nearest first."""
    first, comma, rest = word.partition(",")
    near = difflib.get_close_matches(first, names, n=len(names) or 1, cutoff=0.6)
    hint = f"did you mean {near[0]}{comma and ':'}{rest}? " if near else ""
    return f"{hint}known: {', '.join(near + [n for n in names if n not in near]) or 'none'}"
