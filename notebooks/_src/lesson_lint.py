"""The rules that every lesson keeps, for its learners. Each rule is a function of a `Page`; it yields its faults.

A fault names notebook and cell, then: rule -> got -> do.
"""

from __future__ import annotations

import ast
import html.parser
import re
import statistics
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path

import nbformat
from lesson_source import FACTS, IGNORE, tags
from nbformat import NotebookNode

MAX_LINES, MAX_LINES_LONG, MEDIAN_LINES = 20, 35, 8
MAX_CODE_CELLS, MAX_CODE_CELLS_REFERENCE = 45, 70
MAX_CODE_RUN = 2  # code cells without text between them
MAX_IGNORED_RUN = 3
MIN_ALT = 20  # characters: "a plot" says nothing
MAX_BYTES = 1_200_000
KNOWN_TAGS = {IGNORE, "long", "constant-time"}

OLD_NAMES = ("fit_generator", "ImageDataGenerator", "predict_generator", "evaluate_generator")
NETWORK_MODULES = {"urllib", "requests", "http", "httpx", "socket", "ftplib", "aiohttp", "gdown", "kagglehub"}
NETWORK_CALLS = {"get_file", "urlopen", "urlretrieve", "hf_hub_download", "snapshot_download"}
NETWORK_WORDS = re.compile(r"\b(wget|curl|pip install|git clone)\b")
PATH_TRICKS = {"sys.path", "os.chdir", "site.addsitedir"}
ROOTS = "home|root|tmp|usr|var|opt|mnt|media|content|kaggle|Users|work|private|srv"
ABSOLUTE = re.compile(rf"(?<![\w./])(?:/(?:{ROOTS})\b|~/|[A-Z]:\\)")
ABSOLUTE_IN_OUTPUT = re.compile(ABSOLUTE.pattern + r"|site-packages|ipykernel_\d+")
TIMES = r"ns|us|µs|ms|s|secs?|seconds?|min|minutes?"
SPEEDS = r"(?:img|images?|rows?|batch(?:es)?|[kMG]i?B)(?:/s| a second| per second)"
MEASURED = re.compile(rf"\d\s?(?:{TIMES}|{SPEEDS})\b")
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}|\bpid[ =:]+\d+|\bprocess \d{3,}")
CHATTY = {"fit", "fit_generator", "evaluate", "predict"}


@dataclass(frozen=True)
class Fault:
    """One broken rule; ``cell`` is the number of the cell, or None for the whole notebook."""

    rule: str
    message: str
    cell: int | None = None


class Page:
    """A notebook, read for the rules: texts, code, parsed code, sections."""

    def __init__(self, notebook: NotebookNode, name: str, executed: bool):
        self.cells, self.name, self.executed = notebook.cells, name, executed
        self.head = notebook.metadata.get("lesson", {})
        self.bytes = len(nbformat.writes(notebook).encode())

    @cached_property
    def texts(self) -> list[tuple[int, str]]:
        """(number, source) of the text cells."""
        return [(number, cell.source) for number, cell in enumerate(self.cells) if cell.cell_type == "markdown"]

    @cached_property
    def code(self) -> list[tuple[int, NotebookNode]]:
        """(number, cell) of the code cells."""
        return [(number, cell) for number, cell in enumerate(self.cells) if cell.cell_type == "code"]

    @cached_property
    def trees(self) -> list[tuple[int, NotebookNode, ast.Module]]:
        """(number, cell, syntax tree) of the code cells that are Python."""
        return [(number, cell, tree) for number, cell in self.code if (tree := _parse(cell.source)) is not None]

    @property
    def compared(self) -> list[tuple[int, NotebookNode]]:
        """The code cells whose output is compared."""
        return [(number, cell) for number, cell in self.code if not ignored(cell)]

    def is_code(self, number: int) -> bool:
        """Whether there is a code cell of this number."""
        return number < len(self.cells) and self.cells[number].cell_type == "code"


def lint(notebook: NotebookNode, path: Path, *, executed: bool = True) -> list[str]:
    """All faults of a notebook as sentences; ``executed=False`` leaves out the rules on outputs."""
    page = Page(notebook, path.stem, executed)
    return [str_fault(fault, path) for fault in faults(page)]


def faults(page: Page) -> Iterator[Fault]:
    """All faults of a page, rule by rule."""
    for rule in SOURCE_RULES + (OUTPUT_RULES if page.executed else ()):
        for message, cell in rule(page):
            yield Fault(rule.__name__, message, cell)


def str_fault(fault: Fault, path: Path) -> str:
    """``02_x.ipynb, cell 7 (magics): ...``"""
    where = "" if fault.cell is None else f", cell {fault.cell}"
    return f"{path.name}{where} ({fault.rule}): {fault.message}"


# --- the story: head, sections, objectives, predictions -------------------------------------------------------------


def head(page: Page):
    """The first cell promises, lists objectives, says what is needed and holds the table of facts."""
    first = page.cells[0].source if page.cells and page.cells[0].cell_type == "markdown" else ""
    number = page.name[:2]
    if not re.match(rf"# {number} · \S", first):
        yield f"a lesson starts with '# {number} · Title'; got {first.splitlines()[:1]}. Write that line.", 0
    for words in ("**In this lesson you will build**", "**You can, at the end,**", "**You need**", FACTS):
        if words not in first:
            yield f"the first cell lacks {words!r}. Add it: see the other lessons.", 0
    if not 2 <= len(objectives(page)) <= 6:
        yield f"a lesson has 2 to 6 numbered objectives; got {len(objectives(page))}. List what a learner can do.", 0


def opening(page: Page):
    """The first code cell opens the lesson."""
    if not page.code or "open_lesson(" not in page.code[0][1].source or not ignored(page.code[0][1]):
        yield f"the first code cell calls open_lesson() and is tagged {IGNORE}. Make it so.", _first(page.code)


def sections(page: Page):
    """Sections count 1, 2, 3 ..., and the key points close the lesson."""
    titles = [(cell, line) for cell, text in page.texts for line in prose(text) if line.startswith("## ")]
    numbers = [line[3:].split(".")[0] for _, line in titles if line != "## Key points"]
    if numbers != [str(number + 1) for number in range(len(numbers))] or not numbers:
        yield f"sections are '## 1. Title', '## 2. Title' and so on; got {numbers}. Number them again.", None
    if not titles or titles[-1][1] != "## Key points":
        yield "the last section is '## Key points'. Write it.", None
        return
    bullets = [line for line in page.cells[titles[-1][0]].source.splitlines() if line.startswith("- ")]
    if len(bullets) != 3:
        yield f"there are exactly three key points ('- ...'); got {len(bullets)}.", titles[-1][0]


def checkpoints(page: Page):
    """Each objective has its checkpoint, each checkpoint its objective and its answer."""
    wanted, found = set(objectives(page)), set()
    for cell, text in page.texts:
        for number in re.findall(r"^\*\*Checkpoint (\d+)[a-z]?\.\*\*", text, re.MULTILINE):
            found.add(number)
            if number not in wanted:
                yield f"checkpoint {number} belongs to no objective. Number it like the objective it tests.", cell
            if "<details><summary>Answer</summary>" not in text and not page.is_code(cell + 1):
                yield f"checkpoint {number} has no answer. Add a <details> block, or a code cell after it.", cell
    for number in sorted(wanted - found):
        yield f"objective {number} has no checkpoint. Add a cell starting '**Checkpoint {number}.**'.", 0


def predictions(page: Page):
    """A lesson lets the learner predict before a cell is run."""
    found = False
    for cell, text in page.texts:
        if not re.search(r"^\*\*Predict:\*\*", text, re.MULTILINE):
            continue
        found = True
        if not text.rstrip().endswith("?"):
            yield "a prediction ends with its question. Put the question last.", cell
        if not page.is_code(cell + 1):
            yield "a prediction is followed at once by the code cell that answers it. Move them together.", cell
    if not found:
        yield "a lesson has at least one '**Predict:** ...?' before a code cell. Add one.", None


def then_and_now(page: Page):
    """Where an old name is taught, a box says what it is called today."""
    text = "\n".join(text for _, text in page.texts)
    code = "\n".join(cell.source for _, cell in page.code)
    old = [name for name in OLD_NAMES if name in code]
    if old and not re.search(r"^> \*\*Then and now\.\*\*", text, re.MULTILINE):
        yield f"a lesson that uses {', '.join(old)} has a box '> **Then and now.** ...'. Add it.", None


# --- the code ---------------------------------------------------------------------------------------------------------


def lengths(page: Page):
    """Cells are short, and not too many."""
    counts = [(number, cell, code_lines(cell.source)) for number, cell in page.code]
    for number, cell, count in counts:
        most = MAX_LINES_LONG if "long" in tags(cell) else MAX_LINES
        if count > most:
            yield f"a code cell has at most {most} lines; got {count}. Split it, one thought a cell.", number
    if sum("long" in tags(cell) for _, cell, _ in counts) > 1:
        yield "one cell of a lesson may be tagged long; got more.", None
    if counts and (median := statistics.median(count for *_, count in counts)) > MEDIAN_LINES:
        yield f"half of the code cells have at most {MEDIAN_LINES} lines; the median is {median:g}. Split some.", None
    most = MAX_CODE_CELLS_REFERENCE if page.head.get("reference") else MAX_CODE_CELLS
    if len(counts) > most:
        yield f"a lesson has at most {most} code cells; got {len(counts)}. Move some into helpers or drop them.", None


def explanations(page: Page):
    """Text stands between code cells."""
    run = 0
    for number, cell in enumerate(page.cells):
        run = run + 1 if cell.cell_type == "code" else 0
        if run == MAX_CODE_RUN + 1:
            yield f"at most {MAX_CODE_RUN} code cells follow each other. Say what the outputs show.", number


def imports(page: Page):
    """The first import of a module says what it is: a comment on its line, or its name in the text above."""
    known: set[str] = set()
    for number, cell, tree in page.trees:
        above = " ".join(text for other, text in page.texts if other < number)
        lines = cell.source.splitlines()
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)):
            modules, names = _imported(node)
            commented = any("#" in line for line in lines[node.lineno - 1 : node.end_lineno])
            if not commented and not modules <= known and not any(_mentions(above, name) for name in names):
                what = " ".join(sorted(modules))
                yield f"an import is explained where it first stands; got {what}. Add a comment.", number
            known |= modules


def magics(page: Page):
    """Plain Python only: an unknown magic makes a failing cell pass, and a shell is another one on each machine."""
    for number, cell in page.code:
        lines = [line.strip() for line in cell.source.splitlines()]
        if found := [line for line in lines if re.match(r"(%|!|\?)|[\w.]+\?+$", line)]:
            yield f"no magics and no shell commands; got {found[0]!r}. Write Python.", number
        elif _parse(cell.source) is None:
            yield "a code cell is valid Python; this one does not parse.", number


def semicolons(page: Page):
    """No trailing semicolon: it hides the output from the learner and fails under nbval."""
    for number, cell in page.code:
        if last_token(cell.source) == ";":
            yield "the last line ends with ';'. Write _ = ... instead.", number


def network(page: Page):
    """A lesson works without a network."""
    for number, _, tree in page.trees:
        roots = {name.split(".")[0] for node in ast.walk(tree) for name in _imported(node)[0]}
        calls = {_dotted(node.func).split(".")[-1] for node in ast.walk(tree) if isinstance(node, ast.Call)}
        words = {found for text in _strings(tree) for found in NETWORK_WORDS.findall(text)}
        if found := sorted(roots & NETWORK_MODULES | calls & NETWORK_CALLS | words):
            yield f"a lesson uses no network; got {', '.join(found)}. Use the data that data_scripts make.", number


def paths(page: Page):
    """Paths are relative to the notebook, and modules are found because the kit is installed."""
    for number, _, tree in page.trees:
        if found := [text for text in _strings(tree) if ABSOLUTE.search(text)]:
            yield f"paths are relative, such as 'data/toy.h5'; got {found[0]!r}.", number
        dotted = {_dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        if found := sorted(dotted & PATH_TRICKS):
            yield f"a lesson leaves {', '.join(found)} alone. The kit is installed: imports work.", number


def known_tags(page: Page):
    """Tags are the known ones: a misspelt tag would do nothing."""
    for number, cell in enumerate(page.cells):
        if found := sorted(set(tags(cell)) - KNOWN_TAGS):
            yield f"tags are {', '.join(sorted(KNOWN_TAGS))}; got {', '.join(found)}.", number


def quiet_training(page: Page):
    """Compared cells train with verbose=0: a progress line never comes out twice the same."""
    for number, cell, tree in page.trees:
        if ignored(cell):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _is_chatty(node) and not _is_quiet(node):
                yield f"{_dotted(node.func)} in a compared cell needs verbose=0.", number


def compared_after_ignored(page: Page):
    """What is not compared is followed by a fact that is."""
    run: list[int] = []
    for number, cell in enumerate(page.cells):
        if cell.cell_type == "code" and ignored(cell) and number != _first(page.code):
            run.append(number)
            if len(run) > MAX_IGNORED_RUN:
                yield f"at most {MAX_IGNORED_RUN} cells without compared output follow each other.", number
        elif cell.cell_type == "code":
            run = []
        if run and (cell.cell_type == "markdown" and re.search(r"^## ", cell.source, re.MULTILINE)):
            yield f"a cell tagged {IGNORE} is followed, in its section, by one with the robust fact.", run[-1]
            run = []


def markdown_pictures(page: Page):
    """Pictures in the text have alt text."""
    for cell, text in page.texts:
        alts = re.findall(r"!\[([^\]]*)\]\(", text) + image_alts(text)
        if any(len(alt.strip()) < MIN_ALT for alt in alts):
            yield f"a picture has an alt text of {MIN_ALT} characters or more. Say what it shows.", cell


# --- the outputs ------------------------------------------------------------------------------------------------------


def execution(page: Page):
    """Cells were run once each, from top to bottom."""
    counts = [cell.execution_count for _, cell in page.code]
    if counts != list(range(1, len(counts) + 1)):
        cell = next(number for place, (number, cell) in enumerate(page.code, 1) if cell.execution_count != place)
        yield f"cells are executed 1, 2, 3 ... without gaps; got {counts}. Build the notebook, do not run parts.", cell


def errors(page: Page):
    """No error is stored, and nothing on stderr."""
    for number, output in _outputs(page.code):
        if output.output_type == "error":
            yield f"no error is stored; got {output.ename}. Show it with fails_with(...) or in a child.", number
        if output.output_type == "stream" and output.name == "stderr":
            yield f"nothing goes to stderr; got {output.text.strip()[:200]!r}. Avoid it, or catch and print it.", number


def pictures(page: Page):
    """Pictures are shown by `show`, which gives them alt text; no widgets, no SVG."""
    for number, output in _outputs(page.code):
        data = output.get("data", {})
        if found := sorted(kind for kind in data if kind.startswith("image/")):
            yield f"a picture is shown by show(figure, alt=...); got {found[0]}, which has no alt text.", number
        if found := sorted(kind for kind in data if "widget" in kind or "javascript" in kind):
            yield f"no widgets; got {found[0]}. Print the result.", number
        if any(len(alt.strip()) < MIN_ALT for alt in image_alts(_text(data.get("text/html", "")))):
            yield f"a picture has an alt text of {MIN_ALT} characters or more. Say what it shows.", number


def private_paths(page: Page):
    """No output shows where the kit lies on this machine."""
    for number, output in _outputs(page.code):
        if found := ABSOLUTE_IN_OUTPUT.search(readable(output)):
            yield f"outputs hold no path of this machine; got {_around(readable(output), found)!r}.", number


def same_everywhere(page: Page):
    """Compared outputs hold no measured time, no address, no process number."""
    for number, cell in page.compared:
        text = "\n".join(readable(output) for output in cell.outputs)
        if "constant-time" not in tags(cell) and (found := MEASURED.search(text)):
            advice = f"Tag the cell {IGNORE} and print the robust fact in the next, or tag it constant-time."
            yield f"a compared output states no measured time; got {_around(text, found)!r}. {advice}", number
        if found := ADDRESS.search(text):
            yield f"a compared output holds no address and no process number; got {_around(text, found)!r}.", number


def size(page: Page):
    """A notebook opens quickly."""
    if page.bytes > MAX_BYTES:
        yield f"a notebook has at most {MAX_BYTES} bytes; got {page.bytes}. Show fewer or smaller pictures.", None


SOURCE_RULES = (
    head, opening, sections, checkpoints, predictions, then_and_now, lengths, explanations, imports, magics, semicolons,
    network, paths, known_tags, quiet_training, compared_after_ignored, markdown_pictures,
)  # fmt: skip
OUTPUT_RULES = (execution, errors, pictures, private_paths, same_everywhere, size)


# --- reading cells ----------------------------------------------------------------------------------------------------


def ignored(cell: NotebookNode) -> bool:
    """Whether the output of this cell is not compared."""
    return IGNORE in tags(cell)


def objectives(page: Page) -> list[str]:
    """Numbers of the objectives in the first cell, as text."""
    text = page.cells[0].source if page.cells else ""
    part = text.partition("**You can, at the end,**")[2].partition("**You need**")[0]
    return re.findall(r"^(\d+)\. ", part, re.MULTILINE)


def prose(text: str) -> list[str]:
    """Lines of a text outside of its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()


def code_lines(source: str) -> int:
    """Lines that are neither blank nor only a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in source.splitlines())


def last_token(source: str) -> str:
    """The last token of a cell that is neither a comment nor a line end; '' when there is none."""
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT}
    last = ""
    try:
        for token in tokenize.generate_tokens(StringIO(source).readline):
            last = last if token.type in skip else token.string
    except (tokenize.TokenError, SyntaxError):
        return source.rstrip()[-1:]
    return last


def image_alts(markup: str) -> list[str]:
    """Alt texts of the <img> tags in HTML; '' for one without."""
    finder = _ImageFinder()
    finder.feed(markup)
    return finder.alts


def readable(output: NotebookNode) -> str:
    """What a reader sees of one output: its text, or its HTML without pictures' bytes."""
    if output.output_type == "stream":
        return _text(output.text)
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    data = output.get("data", {})
    shown = data.get("text/html") or data.get("text/markdown") or data.get("text/plain", "")
    return re.sub(r"data:[\w/+-]+;base64,[A-Za-z0-9+/=\s]+", "", _text(shown))


class _ImageFinder(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.alts: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.alts.append(dict(attrs).get("alt") or "")


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _outputs(code: list[tuple[int, NotebookNode]]) -> Iterator[tuple[int, NotebookNode]]:
    return ((number, output) for number, cell in code for output in cell.outputs)


def _first(code: list[tuple[int, NotebookNode]]) -> int | None:
    return code[0][0] if code else None


def _around(text: str, found: re.Match) -> str:
    return text[max(0, found.start() - 20) : found.end() + 10].strip()


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except SyntaxError:
        return None


def _imported(node: ast.AST) -> tuple[set[str], set[str]]:
    """(modules, names under which the text may speak of them)."""
    if isinstance(node, ast.Import):
        modules = {alias.name for alias in node.names}
        return modules, modules | {name.split(".")[0] for name in modules}
    if isinstance(node, ast.ImportFrom) and node.module:
        names, parts = {alias.name for alias in node.names}, node.module.split(".")
        return {node.module}, names | {node.module, parts[-1]} | ({parts[0]} - {"helpers"})
    return set(), set()


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE) is not None


def _strings(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_chatty(node: ast.Call) -> bool:
    name = _dotted(node.func)
    return name.split(".")[-1] in CHATTY and ("." in name or name == "fit_generator")


def _is_quiet(node: ast.Call) -> bool:
    return any(word.arg == "verbose" and getattr(word.value, "value", None) == 0 for word in node.keywords)
