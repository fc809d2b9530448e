"""The child process that renders chat templates: one JSON request per line on stdin, one JSON reply per line on stdout.

A chat template is a program from a downloaded file. Jinja2's sandbox stops it from reaching Python; the limits of this
process (processor time, address space, size of the answer) stop loops and memory bombs. Run as a script; it imports
nothing of the project, so that it starts fast.
"""

from __future__ import annotations

import json
import math
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS = 2
ADDRESS_SPACE_BYTES = 512 << 20
OUTPUT_BYTES = 4 << 20
MESSAGE_CHARACTERS = 500


class GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}``: marks the assistant's tokens for training; its body is rendered."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


def raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def environment() -> ImmutableSandboxedEnvironment:
    """The environment that Hugging Face renders chat templates in: same whitespace rules, filters, globals and tags."""
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return env


def render(env: ImmutableSandboxedEnvironment, request: dict) -> dict:
    """The reply to one request: {"text": …} or {"error": kind, "message": …, "line": number or None}."""
    try:
        text = env.from_string(request["template"]).render(**request["variables"])
    except MemoryError:
        return {"error": "memory", "message": "", "line": None}
    except jinja2.TemplateError as e:
        message = (e.message or type(e).__name__)[:MESSAGE_CHARACTERS]
        return {"error": "template", "message": message, "line": getattr(e, "lineno", None)}
    except Exception as e:
        return {"error": "template", "message": f"{type(e).__name__}: {e}"[:MESSAGE_CHARACTERS], "line": None}
    if len(text) > OUTPUT_BYTES or len(text.encode("utf-8", "surrogatepass")) > OUTPUT_BYTES:
        return {"error": "output", "message": "", "line": None}
    return {"text": text}


def allow_more_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS, hard))


def limit_address_space() -> None:
    """Limit this process's address space to ADDRESS_SPACE_BYTES, or to a lower limit already set."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = ADDRESS_SPACE_BYTES if hard == resource.RLIM_INFINITY else min(ADDRESS_SPACE_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a chat stops the answer, not this process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_address_space()
    env = environment()
    for line in sys.stdin.buffer:
        allow_more_time()
        reply = render(env, json.loads(line))
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
