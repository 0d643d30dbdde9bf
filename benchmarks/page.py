"""What an experiment leaves for its page in docs/evidence: results as JSON, tables in Markdown, figures as SVG."""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
EVIDENCE = ROOT / "docs" / "evidence"
SCRATCH = ROOT / "build" / "evidence"
"""Where runs go that are not what a page quotes: quick ones, and those without the data."""
DIFFER = "**Today's defaults differ from these**"
"""Sentence of a page that was measured with other defaults than today's."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's, which everybody can tell apart."""

matplotlib.use("Agg")
matplotlib.rcParams |= {
    "svg.hashsalt": "lethe",
    "font.size": 9,
    "legend.fontsize": 8,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
}


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def _processor() -> str:
    about = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in about.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write(name: str, results: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def read(name: str) -> dict[str, Any]:
    """The results that a page quotes."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table. None is a dash; whole numbers get thousands separators; other numbers come as text."""
    lines = [heads, ["---"] * len(heads), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case str():
            return value
    raise TypeError(f"Expected a whole number, a text or nothing in a table, not {value!r}")


def figure(width: float = 6.0, height: float = 3.6) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def save(drawn: Figure, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
