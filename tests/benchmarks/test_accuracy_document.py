"""docs/accuracy.md has the figures of the committed results."""

from pathlib import Path

import accuracy_document

DOCUMENT = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_document_is_written_from_the_results(capsys):
    accuracy_document.main()
    assert capsys.readouterr().out == DOCUMENT.read_text()
