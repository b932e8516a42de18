"""The pages: links lead somewhere, and commands have the options that are given to them."""

from __future__ import annotations

import csv
import re
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "benchmarks", "experiments", "examples/resnet8_digits")
    for page in (REPOSITORY / folder).glob("*.md")
)
COMMANDS = {
    "disco-export": "disco_converter.cli",
    "disco-flash": "disco_host.cli_flash",
    "disco-latency": "disco_planning.cli",
    "disco-node": "disco_host.cli_node",
    "disco-run": "disco_host.cli_run",
}
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# A command with its arguments: a line of a code block, joined where it goes on, or what backticks hold.
CALL = re.compile(r"(?:^ *|`)(disco-[a-z]+)((?:[^\n`\\#]|\\\n)*)", re.MULTILINE)
OPTION = re.compile(r"(?<=\s)--?[a-z][a-z-]*")


def anchors(text: str) -> set[str]:
    """Those that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}


def broken_links(page: Path, text: str) -> list[str]:
    """Links to files that do not exist, or to headings that their page does not have."""
    broken = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def calls(text: str) -> list[tuple[str, str]]:
    """Commands of ours with the options that a page gives them."""
    return [(name, option) for name, rest in CALL.findall(text) for option in OPTION.findall(rest)]


def table(text: str, first: str) -> list[list[str]]:
    """Cells of the rows of the table whose first column is called `first`."""
    block = text[text.index(f"| {first} |") :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()[2:]]


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """Of each command, as its help lists them."""
    known = {}
    for name, module in COMMANDS.items():
        with pytest.MonkeyPatch.context() as patch:
            shown: list[str] = []
            patch.setattr("argparse.ArgumentParser._print_message", lambda _, text, *__: shown.append(text))  # noqa: B023
            with pytest.raises(SystemExit):
                import_module(module).main(["--help"])
        known[name] = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "".join(shown)))
    return known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_page(page: Path, options: dict[str, set[str]]) -> None:
    text = page.read_text(encoding="utf-8")
    assert broken_links(page, text) == []
    unknown = [f"{name} {option}" for name, option in calls(text) if option not in options.get(name, set())]
    assert unknown == []


def test_the_checks_see_faults(tmp_path: Path, options: dict[str, set[str]]) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page: one\n[a](#a-page-one) [b](#a-page) [c](missing.md) [d](https://example.org/x)", encoding="utf-8"
    )
    assert broken_links(page, page.read_text(encoding="utf-8")) == ["#a-page", "missing.md"]
    text = "    disco-run b --boards x \\\n        --no-such y   # --comment\n`disco-latency m --nodes 2`"
    assert calls(text) == [("disco-run", "--boards"), ("disco-run", "--no-such"), ("disco-latency", "--nodes")]
    assert "--boards" in options["disco-run"]
    assert "--no-such" not in options["disco-run"]


def test_the_readme_has_the_figure_of_the_experiments() -> None:
    with (REPOSITORY / "experiments" / "results" / "summary.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["experiment"], row["network"]) == ("latency", "cnn")]
    dense, ninety = (
        next(row for row in rows if (row["method"], row["sparsity"]) == key)
        for key in (("dense", "0"), ("disco", "0.9"))
    )
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f"{float(dense['latency_ms']) / float(ninety['latency_ms']):.1f} times less time" in text
    accuracies = [f"{100 * float(row['accuracy_mean']):.1f}" for row in (ninety, dense)]
    assert f"({accuracies[0]} and {accuracies[1]} %" in text


def test_the_readme_has_the_figures_of_the_benchmark() -> None:
    page = (REPOSITORY / "benchmarks" / "firmware.md").read_text(encoding="utf-8")
    cases = [row for row in table(page, "model") if row[3] == "1"]
    counts = {(model, board, optimize): count for model, board, optimize, _, _, count, *_ in cases}
    rows = table((REPOSITORY / "README.md").read_text(encoding="utf-8"), "network")
    assert len(rows) == 4
    m4, m55 = "qemu-mps2-an386", "qemu-mps3-an547"
    for name, _, *shown in rows:
        model = name[name.index("(") + 1 : -1]
        columns = ((m4, "size"), (m4, "balanced"), (m4, "speed"), (m55, "balanced"))
        measured = [int(counts[(model, *column)].replace(",", "")) / 1e6 for column in columns]
        assert shown[:4] == [f"{count:.2f} M" for count in measured]
