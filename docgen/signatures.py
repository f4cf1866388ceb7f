"""Pages of public functions and classes: signatures and docstrings, read from the sources without importing them."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

SECTIONS = {
    "oneshot_fl": ("From Python", ["__init__.py"]),
    "parts": ("Parts of methods", ["parts/*.py"]),
    "methods": ("Parts of single methods", ["methods/*.py"]),
    "data": ("Data and partitions", ["data/*.py"]),
    "models": ("Models", ["models/*.py"]),
    "tracking": ("Loggers", ["tracking/loggers.py"]),
    "values": ("Types of settings", ["values.py"]),
}
"""Page -> its title and the modules it shows."""
BLOCK = re.compile(r"^(Args|Raises|Returns):$")
ENTRY = re.compile(r"^    (\S.*?): (.*)$")
Documented = ast.FunctionDef | ast.ClassDef


def signature_pages(package: Path) -> dict[str, str]:
    """One page for each section; modules without anything public are left out."""
    return {
        f"code/{page}.md": section_page(package, title, [path for glob in globs for path in sorted(package.glob(glob))])
        for page, (title, globs) in SECTIONS.items()
    }


def anchors(package: Path) -> dict[str, str]:
    """Where each public function and class is described: dotted name -> page and anchor, from the site's root."""
    found = {}
    for page, (_, globs) in SECTIONS.items():
        for module in (path for glob in globs for path in package.glob(glob)):
            names = [f"{name_of(package, module)}.{node.name}" for node in public_nodes(ast.parse(module.read_text()))]
            found |= {name: f"code/{page}.md#{name}" for name in names}
    return found


def section_page(package: Path, title: str, modules: list[Path]) -> str:
    """All modules of a section."""
    parts = [line for module in modules for line in module_section(module, name_of(package, module))]
    return "\n".join([f"# {title}", "", *parts])


def name_of(package: Path, module: Path) -> str:
    """The dotted name of a module's file."""
    parts = [package.name, *module.relative_to(package).with_suffix("").parts]
    return ".".join(part for part in parts if part != "__init__")


def module_section(path: Path, name: str) -> list[str]:
    """A module's first line and its public functions and classes; nothing where it has none."""
    tree = ast.parse(path.read_text())
    public = list(public_nodes(tree))
    if not public:
        return []
    about = (ast.get_docstring(tree) or "").split("\n\n")[0]
    shown = [line for node in public for line in documented(node, name)]
    return [f"## {name}", "", *about.splitlines(), "", *shown]


def public_nodes(tree: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    """Functions and classes whose names do not begin with an underscore."""
    for node in tree.body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node


def documented(node: Documented, module: str) -> list[str]:
    """A heading, the signature and the docstring; of a class also its public methods."""
    name = f"{module}.{node.name}"
    methods = [line for method in _methods(node) for line in _method(method)]
    return [
        f"### {node.name} {{ #{name} }}",
        "",
        "```python",
        *signature(node),
        "```",
        "",
        *markdown(ast.get_docstring(node) or ""),
        "",
        *methods,
    ]


def _methods(node: Documented) -> list[ast.FunctionDef]:
    if not isinstance(node, ast.ClassDef):
        return []
    return [each for each in public_nodes(node) if isinstance(each, ast.FunctionDef)]


def _method(node: ast.FunctionDef) -> list[str]:
    about = " ".join((ast.get_docstring(node) or "").split())
    return [f"`{_call(node)}`", f":   {about or '...'}", ""]


def signature(node: Documented) -> list[str]:
    """A function's signature, or a class's name with what its constructor takes, one parameter a line if long."""
    if isinstance(node, ast.FunctionDef):
        return _wrapped(f"def {node.name}", node.args, _returns(node))
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            return _wrapped(f"class {node.name}", method.args, "")
    fields = [
        ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.dump(each)
    ]
    return [f"class {node.name}({', '.join(fields)})"] if len(fields) < 4 else _lines(f"class {node.name}", fields, "")


def _returns(node: ast.FunctionDef) -> str:
    return f" -> {ast.unparse(node.returns)}" if node.returns else ""


def _call(node: ast.FunctionDef) -> str:
    return f"{node.name}({', '.join(_parameters(node.args))}){_returns(node)}".replace("`", "")


def _parameters(arguments: ast.arguments) -> list[str]:
    """Every parameter but self, with its type and default, and the lone star before keyword-only ones."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    shown = [_parameter(*pair) for pair in zip(positional, defaults, strict=True) if pair[0].arg not in ("self", "cls")]
    if arguments.vararg:
        shown.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return shown + ([f"**{_parameter(arguments.kwarg, None)}"] if arguments.kwarg else [])


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{kind}" + (f" = {ast.unparse(default)}" if default else "")


def _wrapped(head: str, arguments: ast.arguments, tail: str) -> list[str]:
    return _lines(head, _parameters(arguments), tail)


def _lines(head: str, parameters: list[str], tail: str) -> list[str]:
    short = f"{head}({', '.join(parameters)}){tail}"
    if len(short) <= 90:
        return [short]
    return [f"{head}(", *[f"    {parameter}," for parameter in parameters], f"){tail}"]


def markdown(docstring: str) -> list[str]:
    """A docstring as Markdown: its blocks of arguments and errors become lists."""
    lines, block = [], False
    for line in inspect.cleandoc(docstring).splitlines():
        if match := BLOCK.match(line):
            block = True
            lines += [f"**{match[1]}**", ""]
        elif block and (entry := ENTRY.match(line)):
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        else:
            block = block and (line.startswith("    ") or not line)
            lines.append(line.strip() if block else line)
    return lines
