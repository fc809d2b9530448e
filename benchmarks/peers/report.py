"""Format results as Markdown: a table for each model, scheme and number of threads."""

from __future__ import annotations

from collections.abc import Iterator

from peers.catalog import OURS
from peers.results import Figure, Group, Measured, Result


def is_ours(engine: str) -> bool:
    return engine.partition(" ")[0] == OURS


def ratio(measured: Measured) -> float | None:
    """This project's tokens per second divided by the best peer's; None if one is missing."""
    ours = next((f.tokens_per_s for name, f in measured.figures.items() if is_ours(name)), None)
    peers = [f.tokens_per_s for name, f in measured.figures.items() if f.tokens_per_s and not is_ours(name)]
    return ours / max(peers) if ours and peers else None


def markdown(result: Result) -> str:
    """Tables of all groups in tokens per second, with shares of the machine's limit in parentheses."""
    lines = [f"# Beside other engines on {result.machine}", ""]
    for group in sorted(result.groups, key=lambda group: group.key):
        lines += _group(group)
    return "\n".join(lines)


def _group(group: Group) -> Iterator[str]:
    names = list(group.engines)
    yield f"## {group.model}, {group.scheme}, {group.threads} thread{'s' if group.threads > 1 else ''}"
    yield ""
    yield (
        f"Limits: reads {group.read_bytes_per_s / 1e9:.1f} GB/s, computes {group.op_per_s / 1e9:.0f} Gop/s. A sample "
        f"of decoding has {group.steps} steps; other programs used at most {group.others_limit:g} processors."
    )
    yield ""
    yield "| tokens/s (share) | " + " | ".join(names) + " | ours / best peer |"
    yield "|---" * (len(names) + 2) + "|"
    for measured in group.cells:
        found = ratio(measured)
        columns = [_figure(measured.figures[name]) for name in names] + [f"{found:.2f}" if found else "–"]
        yield f"| {measured.cell.title} | " + " | ".join(columns) + " |"
    yield ""
    for name, about in group.engines.items():
        options = f", `--opt {about.options}`" if about.options else ""
        yield (
            f"- {name}: {about.files}{options}; {about.version}; loaded in {about.load_s:.1f} s; "
            f"agrees with float32 at {about.agreement} of 16 tokens; {about.build.strip()}"
        )
    yield ""


def _figure(figure: Figure) -> str:
    if figure.tokens_per_s is None:
        return f"rejected: {figure.rejected}"
    digits = 0 if figure.tokens_per_s >= 100 else 1
    return f"{figure.tokens_per_s:.{digits}f} ({figure.share:.0%})"
