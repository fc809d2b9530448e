"""Render messages to the text of a prompt: Jinja chat templates and MLC conversation templates."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from mlc_errors import MLCError

WALL_SECONDS = 10.0
CACHE_ENTRIES = 64
WORKER = Path(__file__).with_name("template_worker.py")

REASONS = {
    "time": "the chat template needs more than 2 s of processor time",
    "memory": "the chat template needs more than 512 MB of memory",
    "output": "the chat template wrote more than 4 MB of text",
}


def render_chat_template(
    template: str,
    messages: Sequence[dict],
    *,
    add_generation_prompt: bool = True,
    bos_token: str | None = None,
    eos_token: str | None = None,
    **variables: object,
) -> str:
    """Render `messages` with `template` (Jinja, as in Hugging Face's chat_template).

    messages: dicts with "role" and "content". variables: further names the template may read (tools, documents,
    enable_thinking …). Same semantics as transformers' apply_chat_template. Rendering happens in a child process with
    limits of 2 s, 512 MB and 4 MB of output. Raises MLCError for an invalid template or one that exceeds them.
    """
    names = {"messages": list(messages), "tools": None, "documents": None, **variables}
    names |= {"add_generation_prompt": add_generation_prompt}
    names |= {k: v for k, v in (("bos_token", bos_token), ("eos_token", eos_token)) if v is not None}
    request = json.dumps({"template": template, "variables": names}).encode() + b"\n"
    if "strftime_now" in template:  # depends on the clock
        return _renderer.render(request)
    return _cache.get(request)


def render_conversation(conv_template: dict, messages: Sequence[dict], *, add_generation_prompt: bool = True) -> str:
    """Render `messages` with a conversation template of mlc-chat-config.json.

    A message with role "system" replaces the template's system message. With strip_reasoning_in_history, the text up to
    "</think>" is removed from answers before the last question. Raises MLCError for a role that the template lacks.
    """
    if conv_template.get("strip_reasoning_in_history"):
        messages = _without_old_reasoning(messages)
    system = conv_template.get("system_message", "")
    for message in messages:
        if message["role"] == "system":
            system = message["content"]
    pattern = _with_functions(conv_template, conv_template.get("system_template", "{system_message}"))
    parts = [pattern.replace("{system_message}", system)]
    skip_role = bool(parts[0]) and not conv_template.get("add_role_after_system_message", True)
    for message in messages:
        if message["role"] != "system":
            parts.append(_conversation_turn(conv_template, message, with_role=not skip_role))
            skip_role = False
    if add_generation_prompt:
        parts.append(_role(conv_template, "assistant") + conv_template.get("role_empty_sep", ""))
    return "".join(parts)


def _without_old_reasoning(messages: Sequence[dict]) -> list[dict]:
    questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
    past = questions[-1] if questions else 0
    return [_without_reasoning(m) if i < past and m["role"] == "assistant" else m for i, m in enumerate(messages)]


def _without_reasoning(message: dict) -> dict:
    _, found, answer = message["content"].rpartition("</think>")
    return {**message, "content": answer.lstrip("\n")} if found else message


def _conversation_turn(conv_template: dict, message: dict, *, with_role: bool) -> str:
    role, seps = message["role"], conv_template.get("seps") or [""]
    prefix = _role(conv_template, role) + conv_template.get("role_content_sep", "")
    pattern = conv_template.get("role_templates", {}).get(role, f"{{{role}_message}}")
    content = _with_functions(conv_template, pattern).replace(f"{{{role}_message}}", message["content"])
    return (prefix if with_role else "") + content + seps[-1 if role == "assistant" else 0]


def _with_functions(conv_template: dict, pattern: str) -> str:
    return pattern.replace("{function_string}", conv_template.get("function_string", ""))


def _role(conv_template: dict, role: str) -> str:
    roles = conv_template.get("roles", {})
    if role not in roles:
        raise MLCError(
            f"message has role {role!r}; the conversation template {conv_template.get('name', '')!r} knows "
            f"{', '.join(['system', *roles])}"
        )
    return roles[role]


class _Renderer:
    """The child process that renders templates: started on first use, reused, restarted after it exits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None

    def render(self, request: bytes) -> str:
        with self._lock:
            try:
                reply = json.loads(self._exchange(request))
            except BaseException:
                self.stop()
                raise
            if reply.get("error") == "memory":
                self.stop()
        if "text" in reply:
            return reply["text"]
        raise _failure(reply["error"], reply["message"], reply["line"])

    def stop(self) -> None:
        if self._process is not None:
            atexit.unregister(self.stop)
            self._process.kill()
            self._process.communicate()
            self._process = None

    def forget(self) -> None:
        """Forget the process after a fork: it belongs to the parent process."""
        atexit.unregister(self.stop)
        self._lock = threading.Lock()
        self._process = None

    def _exchange(self, request: bytes) -> bytes:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # the exit status is reported below
        deadline = time.monotonic() + WALL_SECONDS
        reply = bytearray()
        while not reply.endswith(b"\n"):
            if not select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise _failure("time")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise _ended(process)
            reply += chunk
        return bytes(reply)

    def _running(self) -> subprocess.Popen:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            command = [sys.executable, "-P", str(WORKER)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            atexit.register(self.stop)
        return self._process


class _Cache:
    """LRU cache of rendered texts by the SHA-256 of the request."""

    def __init__(self, renderer: _Renderer):
        self._renderer = renderer
        self._texts: OrderedDict[bytes, str] = OrderedDict()

    def get(self, request: bytes) -> str:
        key = hashlib.sha256(request).digest()
        if key not in self._texts:
            self._texts[key] = self._renderer.render(request)
            if len(self._texts) > CACHE_ENTRIES:
                self._texts.popitem(last=False)
        self._texts.move_to_end(key)
        return self._texts[key]


def _failure(kind: str, message: str = "", line: int | None = None) -> MLCError:
    where = () if line is None else (f"line {line} of the chat template",)
    hint = "check chat_template.jinja (or chat_template in tokenizer_config.json) of the model"
    return MLCError(REASONS.get(kind) or f"the chat template failed: {message}", where=where, hint=hint)


def _ended(process: subprocess.Popen) -> MLCError:
    _, stderr = process.communicate()
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return _failure("time")
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    last = lines[-1] if lines else "no message"
    if "MemoryError" in last:
        return _failure("memory")
    return MLCError(f"the process that renders chat templates ended with code {process.returncode}: {last}")


_renderer = _Renderer()
_cache = _Cache(_renderer)
os.register_at_fork(after_in_child=_renderer.forget)
