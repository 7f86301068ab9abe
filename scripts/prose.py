"""The texts that people read: Markdown pages, and the help of the commands.

`check-docs`, `check-words` and `docs-site` share this module.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Pages that programs write, and tables of results.
GENERATED = ("fuzz/corpus",)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
#: Where an item of a list starts.
ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+")
#: An entry of a help text in columns: two spaces, the option, and its meaning.
ENTRY = re.compile(r"  (\S.*?)(?:\s{2,}(\S.*))?$")
#: Help texts of argparse are in these arguments.
HELP_ARGUMENTS = {"help", "description", "epilog"}


@dataclass(frozen=True)
class Text:
    """A paragraph, an item of a list, a cell of a table, or a help text."""

    path: Path
    line: int
    text: str

    @property
    def place(self) -> str:
        """`FILE:LINE`."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def plain(self, code: str) -> str:
        """The text without markup, with a word in place of inline code."""
        found = re.sub(r"(`+).+?\1", f" {code} ", self.text)
        # A link whose text is a path counts as code.
        found = re.sub(r"!?\[[\w./-]+\.\w+\]\([^)]*\)", code, found)
        found = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", found)
        return found.replace("**", "").strip()

    def sentences(self) -> list[str]:
        """The sentences. Inline code counts as one word."""
        parts = re.split(r"(?<=[.!?])[)\"”*]*\s+(?=[(\"“*]*(?:[A-Z0-9]|--))", self.plain("Code"))
        return [part for part in parts if words(part)]


def words(text: str) -> int:
    """How many words a text has."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def tracked(*patterns: str) -> list[Path]:
    """The tree's files that match, without those that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    names = [name for name in listed.stdout.split("\0") if name]
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


def pages() -> list[Path]:
    """The tree's Markdown files that people write."""
    found = tracked("*.md")
    return [page for page in found if not str(page.relative_to(ROOT)).startswith(GENERATED)]


def lines_of(page: Path) -> Iterator[tuple[int, str, bool]]:
    """Each line with its number, and whether it is code."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        fenced ^= is_fence
        yield number, line, fenced or is_fence or line.startswith("    ")


def texts_of(page: Path) -> Iterator[Text]:
    """The texts of a page: paragraphs, items and cells, without headings and code."""
    start, held = 0, []
    for number, line, is_code in [*lines_of(page), (0, "", False)]:
        is_row = line.startswith("|")
        starts = ITEM.match(line)
        if held and (is_code or is_row or starts or not line.strip() or line.startswith("#")):
            yield Text(page, start, " ".join(held))
            held = []
        if is_code or line.startswith("#"):
            continue
        if is_row:
            cells = line.strip().strip("|").split(" | ")
            yield from (Text(page, number, cell.strip()) for cell in cells if cell.strip(" -|"))
        elif line.strip():
            start = start if held else number
            held.append(line[starts.end() :] if starts else line.strip())


def help_texts() -> Iterator[Text]:
    """The help of the commands, from the sources of both parsers."""
    for path in tracked("crates/cli/src/*.rs"):
        text = path.read_text()
        if "#[arg(" in text or "#[command(" in text:
            yield from rust_help(path, text)
    for path in tracked("python/tailscope/*.py"):
        text = path.read_text()
        if "add_argument(" in text:
            yield from python_help(path, text)


def rust_help(path: Path, text: str) -> Iterator[Text]:
    """Doc comments, and `after_help` of clap."""
    for found in re.finditer(r"(?:^ *///.*\n)+", text, re.MULTILINE):
        said = re.sub(r"^ */// ?", "", found.group(), flags=re.MULTILINE)
        yield from in_columns(path, text.count("\n", 0, found.start()) + 1, said)
    for found in re.finditer(r'after_help = "((?:[^"\\]|\\.)*)"', text, re.DOTALL):
        said = found.group(1).removeprefix("\\\n").replace('\\"', '"')
        yield from in_columns(path, text.count("\n", 0, found.start()) + 1, said)


def python_help(path: Path, text: str) -> Iterator[Text]:
    """The arguments of argparse that are shown, and constants of the module."""
    for node in ast.walk(ast.parse(text)):
        is_argument = isinstance(node, ast.keyword) and node.arg in HELP_ARGUMENTS
        is_constant = isinstance(node, ast.Assign) and is_capital(node.targets[0])
        value = node.value if is_argument or is_constant else None
        parts = value.values if isinstance(value, ast.JoinedStr) else [value]
        said = [part.value for part in parts if isinstance(part, ast.Constant)]
        if said and all(isinstance(part, str) for part in said):
            yield from in_columns(path, value.lineno, "".join(said))


def is_capital(node: ast.expr) -> bool:
    """Whether it is a constant's name."""
    return isinstance(node, ast.Name) and node.id.isupper()


def in_columns(path: Path, line: int, text: str) -> Iterator[Text]:
    """The paragraphs and entries of a help text; the left column is code."""
    held: list[str] = []
    indented = False
    for row in [*text.splitlines(), ""]:
        entry = ENTRY.fullmatch(row) if row.startswith("  ") and row[2:3] != " " else None
        left = indented and not row.startswith("  ")
        indented = row.startswith("  ")
        if held and (entry or left or not row.strip()):
            yield Text(path, line, " ".join(held))
            held = []
        if entry:
            held = [entry.group(2)] if entry.group(2) else []
        elif row.strip():
            held.append(row.strip())
