"""Token ids of a conversation's messages, and the text of ids, for chat.c.

python tokens.py DIR MESSAGE > ids     the message in the model's chat template
python tokens.py DIR < ids             the text of each line of ids
"""

from __future__ import annotations

import sys

from mlc_runtime import LLM


def main(folder: str, *messages: str) -> None:
    with LLM(folder) as llm:
        for message in messages:
            print(*llm.chat_prompt([{"role": "user", "content": message}]))
        for line in () if messages else sys.stdin:
            print(llm.tokenizer.decode([int(word) for word in line.split()]))


if __name__ == "__main__":
    main(*sys.argv[1:])
