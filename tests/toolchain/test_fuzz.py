"""More than ten thousand damaged inputs; ``fuzz.py --count N`` runs more."""

import json
import subprocess
import sys
from pathlib import Path

from tests.toolchain.fuzz import TARGETS

ROOT = Path(__file__).parents[2]
COUNT = 10_800


def test_damaged_inputs_are_refused_or_read_within_bounds(tmp_path):
    command = [sys.executable, "-m", "tests.toolchain.fuzz", "--count", str(COUNT), "--keep", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    counts = json.loads(done.stdout)
    assert counts.keys() == TARGETS.keys()
    for outcomes in counts.values():
        assert outcomes.keys() == {"read", "refused"}
        assert sum(outcomes.values()) == COUNT // len(TARGETS)
