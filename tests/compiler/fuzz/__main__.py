"""``python -m tests.compiler.fuzz [--examples N] [--seed S] [--target T]``: compile N random modules, from seed S on.

Every failure is reduced to a small module and printed; the run continues. Modules for GPUs run on a simulated driver.
"""

from __future__ import annotations

import argparse
import time

from tests.compiler.fuzz.differential import Failure, Trial, run_trial


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--target", help="cpu, cpu:NAME, cuda:sm_80; default: a CPU that depends on the seed")
    options = parser.parse_args()
    failures = 0
    for seed in range(options.seed, options.seed + options.examples):
        try:
            run_trial(Trial.of_seed(seed, options.target))
        except Failure as failure:
            failures += 1
            print(f"-- seed {seed}\n{failure}\n{failure.trial}\n", flush=True)
    print(f"{options.examples} modules from seed {options.seed} on: {failures} failures")
    raise SystemExit(failures > 0)


if __name__ == "__main__":
    main()
