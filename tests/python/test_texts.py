"""What `make lint` says of texts: words, long sentences, links, and subjects of commits."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
#: Names in `docs`, in parts: the check reads this file too.
HERE, GONE = "/here.md", "/gone.md"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))


def load(name: str) -> ModuleType:
    """A script as a module; most have no ending."""
    file = SCRIPTS / name if (SCRIPTS / name).exists() else SCRIPTS / f"{name}.py"
    loader = SourceFileLoader(name.replace("-", "_"), str(file))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def texts_of(folder: Path, page: str) -> list:
    """The texts of a page."""
    prose = load("prose")
    prose.ROOT = folder
    file = folder / "page.md"
    file.write_text(page)
    return list(prose.texts_of(file))


def test_paragraphs_items_and_cells_are_texts_and_code_is_none(tmp_path: Path) -> None:
    page = """# Heading

First line
of a paragraph.

- an item
  that continues
- another item

| head | other |
| --- | --- |
| a cell | `code` |

    indented code

```
fenced code
```
"""
    found = [text.text for text in texts_of(tmp_path, page)]
    assert found == [
        "First line of a paragraph.",
        "an item that continues",
        "another item",
        "head",
        "other",
        "a cell",
        "`code`",
    ]


def test_a_sentence_ends_at_its_full_stop_and_code_counts_as_one_word(tmp_path: Path) -> None:
    page = "Run `a b c` first. It takes 0.5 s (`x.y` too). Then [read](page.md) it."
    (text,) = texts_of(tmp_path, page)
    prose = load("prose")
    sentences = text.sentences()
    assert [prose.words(sentence) for sentence in sentences] == [3, 6, 3]


@pytest.mark.parametrize("term", ["Whoever", "so many", "told", "culprits", "a knock", "the clerk"])
def test_a_private_term_is_found_with_what_to_write_instead(tmp_path: Path, term: str) -> None:
    check = load("check-words")
    (fault,) = check.private_terms(texts_of(tmp_path, f"This has {term} in it."))
    assert fault.startswith("page.md:1: ")
    assert "write" in fault


def test_persisted_names_and_longer_words_are_no_private_terms(tmp_path: Path) -> None:
    check = load("check-words")
    page = "`culprits` and `ladder` are keys. A heartbeat is outdoors. Newspapers are retold."
    assert not list(check.private_terms(texts_of(tmp_path, page)))


def test_help_of_both_parsers_is_read() -> None:
    paths = {text.path.suffix for text in load("prose").help_texts()}
    assert paths == {".rs", ".py"}


def test_the_right_column_of_a_help_is_text_and_the_left_one_is_not(tmp_path: Path) -> None:
    prose = load("prose")
    said = "Examples:\n  tailscope top -p 1   shows it\n                       live\n\nMore here.\n"
    found = [text.text for text in prose.in_columns(tmp_path, 1, said)]
    assert found == ["Examples:", "shows it live", "More here."]


def test_a_page_that_a_comment_names_must_exist(tmp_path: Path) -> None:
    check = load("check-docs")
    check.ROOT = tmp_path
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "here.md").touch()
    source = tmp_path / "source.c"
    source.write_text(f"/* docs{HERE}, docs{GONE} */\n// https://kernel.org/docs{GONE}\n")
    assert list(check.missing(source)) == [f"source.c:1: docs{GONE} does not exist"]


def test_a_url_of_the_projects_own_page_must_exist(tmp_path: Path) -> None:
    check = load("check-docs")
    check.ROOT = tmp_path
    unit = tmp_path / "unit"
    unit.write_text(f"Documentation=https://example.org/tailscope/blob/main/docs{GONE}\n")
    assert list(check.missing(unit)) == [f"unit:1: docs{GONE} does not exist"]


def git(folder: Path, *arguments: str) -> str:
    """Runs git as somebody, whatever the machine's configuration."""
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; the subject of the second has 73 characters."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    for subject in ("First", "x" * 73):
        git(folder, "commit", "-q", "--allow-empty", "-m", subject)
    return folder


def test_a_long_subject_after_the_first_commit_is_found(repository: Path) -> None:
    check = load("check-commits")
    first, last = git(repository, "rev-parse", "HEAD~1"), git(repository, "rev-parse", "HEAD")
    (fault,) = check.long_subjects(repository, first)
    assert "73 characters" in fault
    assert check.long_subjects(repository, last) == []


def test_a_shallow_clone_is_skipped_with_a_reason(repository: Path, tmp_path: Path) -> None:
    check = load("check-commits")
    first = git(repository, "rev-parse", "HEAD~1")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), str(shallow))
    with pytest.raises(check.SkippedError, match="does not have commit"):
        check.long_subjects(shallow, first)


def test_a_tree_without_git_is_skipped_with_a_reason(tmp_path: Path) -> None:
    check = load("check-commits")
    with pytest.raises(check.SkippedError, match="no git repository"):
        check.long_subjects(tmp_path, "0" * 40)


def test_the_commands_of_a_help_are_listed() -> None:
    listed = "Commands:\n  record    Record\n  top-down  Show\n  help      Print\n"
    said = f"Usage: x\n\n{listed}\nOptions:\n  -h  Print\n"
    assert load("docs-site").commands_in(said) == ["record", "top-down"]


def test_pages_and_files_that_links_reach_are_collected(tmp_path: Path) -> None:
    site = load("docs-site")
    site.ROOT = tmp_path
    links = "[a](other.md#x), [b](https://x.org), ![c](p.png), [d](#e)\n"
    (tmp_path / "start.md").write_text(links)
    (tmp_path / "other.md").write_text("    [no](code.md)\n")
    for name in ("p.png", "code.md", "alone.md"):
        (tmp_path / name).touch()
    found = {file.name for file in site.reached([tmp_path / "start.md"])}
    assert found == {"start.md", "other.md", "p.png"}


def test_a_pipe_in_code_in_a_table_has_no_backslash_on_the_site(tmp_path: Path) -> None:
    site = load("docs-site")
    site.ROOT = tmp_path
    page = tmp_path / "page.md"
    page.write_text("| `a\\|b` | c \\| d |\n\n`e\\|f`\n")
    assert site.staged(page) == "| `a|b` | c \\| d |\n\n`e\\|f`\n"
