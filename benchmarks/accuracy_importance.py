"""Mean squares of layer inputs as ``convert_weight --calibration auto`` measures them, beside llama.cpp's.

python benchmarks/accuracy_importance.py MODEL_FOLDER --scratch DIR

Both read the same tokens in the same parts; this project with 8-bit weights, llama.cpp with weights in F16. The result
is the correlation over the inputs of each matrix, of the squares' logarithms, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from accuracy_peers import PeerWeights, importances
from accuracy_schemes import OurWeights
from peers import importance_files

from mlc_toolchain.calibration import PART, TOKENS, calibration_ids
from mlc_toolchain.source import resolve_source

RESULT = Path(__file__).resolve().parent / "results" / "importance.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--scratch", type=Path, required=True)
    args = parser.parse_args()
    with OurWeights(args.model, args.scratch) as ours:
        squares = ours.plain_calibration.squares
    ids, where = calibration_ids("auto", resolve_source(str(args.model)), TOKENS)
    peers = PeerWeights(args.model, args.scratch, lambda: squares)
    ids_file, output = args.scratch / "calibration-ids.json", args.scratch / "llama.cpp-importance.dat"
    ids_file.write_text(json.dumps([int(i) for i in ids]))
    peers.run("peers.input_squares", peers.file("F16"), ids_file, str(PART), output)
    theirs, mine = importance_files.read(output), importances(args.model, squares)
    plain = {name: _correlation(values, theirs[name]) for name, values in mine.items()}
    logarithms = {name: _correlation(np.log(values), np.log(theirs[name])) for name, values in mine.items()}
    result = {"model": args.model.name, "text": where, "tokens": len(ids), "matrices": len(plain)}
    for title, found in (("correlation", plain), ("correlation of logarithms", logarithms)):
        least = min(found, key=lambda name: found[name])
        values = [found[name] for name in found]
        result[title] = {"least": found[least], "of": least, "median": float(np.median(values))}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a, b)[0, 1])


if __name__ == "__main__":
    main()
