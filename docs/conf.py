# Sphinx configuration. `make docs` builds into site/; nothing is fetched, not even by a reader's browser.
import re
import shutil
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

from headway import __version__

project = "headway"
author = "The headway developers"
copyright = "2026, The headway developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "amsmath"]
html_math_renderer = "mathml"

html_theme = "furo"
html_title = f"headway {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an "Attributes:" section does not describe a documented member twice

SECTION = re.compile(r"(Args|Attributes|Examples?|Notes?|Raises|Returns|Warns|Yields):$")
SPAN = re.compile(r"(``.+?``|:[\w:]+:`[^`]+`|`[^`]+`)")
MARKUP = re.compile(r"\||\*(?=\S)|(?<=\w)_(?!\w)")


def escape(line: str) -> str:
    """Make `code` literal and keep |g|, *args and add_ from being read as markup."""
    pieces = SPAN.split(line)
    for i, piece in enumerate(pieces):
        if i % 2 == 0:
            pieces[i] = MARKUP.sub(r"\\\g<0>", piece)
        elif piece.startswith("`") and not piece.startswith("``"):
            plural = pieces[i + 1][:1].isalnum()  # `Meter`s
            pieces[i] = f"`{piece}`" + ("\\ " if plural else "")
    return "".join(pieces)


def to_rest(lines: list[str]) -> list[str]:
    """Turn a docstring (plain text, Google sections, indented blocks are code) into reStructuredText."""
    out: list[str] = []
    block: int | None = None  # the indent of the code block that the line is in
    section = False
    text_indent = 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            out.append(line)
            continue
        if block is not None and indent >= block:
            out.append(line)
            continue
        block = None
        if indent == 0:
            section = bool(SECTION.match(line))
        after_blank = bool(out) and not out[-1].strip()
        if after_blank and not section and indent > text_indent:
            block = indent
            out += [" " * text_indent + "::", "", line]
            continue
        text_indent = indent
        out.append(escape(line))
    return out


def rewrite(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Rewrite a docstring in place before napoleon reads its sections."""
    lines[:] = to_rest(lines)


def inline_formula(translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML, which browsers draw by themselves."""
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def formula(translator, node: nodes.math_block) -> None:
    """Write a displayed formula; a wide one scrolls by itself."""
    translator.body.append(
        f'<div class="math" style="overflow-x: auto">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


WIDE, LONGEST = 5, 40  # A table of so many columns has cells of one line, if none has more letters than this


def mark_numbers(app: Sphinx, tree: nodes.document, name: str) -> None:
    """Let wide tables of short cells scroll, rather than break every cell into several lines."""
    for table in tree.findall(nodes.table):
        cells = [entry.astext() for entry in table.findall(nodes.entry)]
        columns = len(list(table.findall(nodes.colspec)))
        if columns >= WIDE and max(map(len, cells), default=0) <= LONGEST:
            table["classes"].append("numbers")


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copy the files that <picture> elements name: Sphinx looks at images in Markdown alone."""
    for page in Path(app.srcdir).rglob("*.md") if error is None else ():
        for name in re.findall(r' (?:src|srcset)="([^":]+)"', page.read_text("utf-8")):
            target = Path(app.outdir, (page.parent / name).resolve().relative_to(app.srcdir))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page.parent / name, target)


def setup(app: Sphinx) -> None:
    """Connect ahead of napoleon, which uses the default priority of 500."""
    app.connect("doctree-resolved", mark_numbers)
    app.connect("build-finished", copy_pictures)
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    app.add_html_math_renderer("mathml", (inline_formula, None), (formula, None))
