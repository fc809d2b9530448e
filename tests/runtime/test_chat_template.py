"""Chat templates render the same text as transformers, within limits of time, memory and output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from mlc_errors import MLCError
from mlc_runtime.chat_template import render_chat_template, render_conversation

ROOT = Path(__file__).parents[2]
MESSAGES = [
    {"role": "system", "content": "Be <brief> & 'kind'."},
    {"role": "user", "content": "  héllo\n👋 "},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "ok"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "é <b>", "parameters": {"x": 1e20}}}]

TEMPLATES = {
    "chatml": "{% for message in messages %}\n    {{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}\n"
    "{% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n{% endif %}",
    "tokens": "{{ bos_token }}{% for m in messages %}{{ m.content | trim }}{{ eos_token }}{% endfor %}",
    "tools": "{% if tools is not none %}{{ tools | tojson(indent=2) }}{% endif %}{{ tools[0] | tojson }}",
    "controls": "{% for m in messages %}{% if loop.index0 == 2 %}{% break %}{% endif %}{% if m.role == 'system' %}"
    "{% continue %}{% endif %}{{ m.content }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}\n{{ m.content }}{% endgeneration %}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}"
    "{% set ns.n = ns.n + m.content|length %}{% endfor %}"
    "{{ '%05d %.2f' % (ns.n, 1e20) }} {{ messages[::-1][0].content.startswith('o') }} {{ strftime_now('%Y') }}",
    "undefined": "{{ documents is none }}{{ missing is defined }}{{ missing }}{{ enable_thinking }}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_same_text_as_transformers(name, add_generation_prompt):
    variables = {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": False}
    expected, _ = render_jinja_template(
        [MESSAGES],
        tools=TOOLS,
        chat_template=TEMPLATES[name],
        add_generation_prompt=add_generation_prompt,
        **variables,
    )
    got = render_chat_template(
        TEMPLATES[name], MESSAGES, add_generation_prompt=add_generation_prompt, tools=TOOLS, **variables
    )
    assert got == expected[0]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "Expected an expression"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[9].content.x }}", "no element 9"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ().__class__.__base__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "append.*unsafe"),
        ("{{ 'a' * 2000000000 }}", "512 MB"),
        ("{{ 'a' * 5000000 }}", "4 MB"),
        ("{% for a in range(9999) %}" * 3 + "{% endfor %}" * 3, "2 s"),
    ],
    ids=["syntax", "refusal", "index", "arithmetic", "sandbox", "mutation", "memory", "output", "time"],
)
def test_bad_template_is_an_error_and_the_next_one_works(template, message):
    with pytest.raises(MLCError, match=message):
        render_chat_template(template, MESSAGES)
    assert render_chat_template("{{ messages|length }}" + f"{{# {message} #}}", MESSAGES) == "4"


MEMORY, DEPTH, UNSAFE, NO_LOADER = "512 MB", "recursion depth", "unsafe", "no loader"
BOMBS = {
    "{{ 'a' * 10**9 }}": MEMORY,
    "{{ [0] * 10**10 }}": MEMORY,
    "{{ '%1000000000d'|format(1) }}": MEMORY,
    "{{ '{:1000000000}'.format(1) }}": MEMORY,
    "{{ '%.1000000000f' % 1.0 }}": MEMORY,
    "{{ 'x'|center(10**9) }}": MEMORY,
    "{{ 'x'.ljust(10**9) }}": MEMORY,
    "{{ 'a\nb'|indent(10**9) }}": MEMORY,
    "{{ [1]|tojson(indent=10**9) }}": MEMORY,
    "{{ ('a' * 10**5)|replace('a', 'a' * 10**5) }}": MEMORY,
    "{{ (range(99999)|list)|join('a' * 10**5) }}": MEMORY,
    "{{ 'x'.zfill(2**40) }}": MEMORY,
    "{{ '\t'.expandtabs(10**9) }}": MEMORY,
    "{{ ' ' * 5000000 }}": "4 MB",
    "{% for i in range(10**9) %}{% endfor %}": "Range too big",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": DEPTH,
    "{% block a %}{{ self.a() }}{% endblock %}": DEPTH,
    "{% for i in range(3) recursive %}{{ loop([1, 2, 3]) }}{% endfor %}": DEPTH,
    "{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}": DEPTH,
    "{% if 1 %}" * 3000 + "{% endif %}" * 3000: DEPTH,
    "{{ " + "not " * 5000 + "1 }}": DEPTH,
    "{{ " + "-" * 5000 + "1 }}": DEPTH,
    "{{ " + "[" * 5000 + "]" * 5000 + " }}": DEPTH,
    "{{ 1" + "|abs" * 2000 + " }}": DEPTH,
    "{{ a" + ".a" * 2000 + " }}": DEPTH,
    "{{ (10**5000)|string }}": "4300 digits",
    "{{ raise_exception('a' * 9000000) }}": "aaa",
    "{{ messages['a' * 9000000] }}{{ messages['a' * 9000000].x }}": "no attribute",
    "{{ 1.__lshift__(10**10) }}": UNSAFE,
    "{{ ''.__class__.__mro__[1].__subclasses__() }}": UNSAFE,
    "{{ cycler.__init__.__globals__ }}": UNSAFE,
    "{{ raise_exception.__globals__.os }}": UNSAFE,
    "{{ '{0.__class__.x}'.format(1) }}": UNSAFE,
    "{{ ('%s' ~ '')|attr('__class__') }}{{ x.y.z }}": "undefined",
    "{% set d = {} %}{{ d.update({'a': d}) }}": UNSAFE,
    "{{ messages.append(messages) }}": UNSAFE,
    "{{ messages.clear() }}": UNSAFE,
    "{% include '/etc/passwd' %}": NO_LOADER,
    "{% import 'os' as os %}": NO_LOADER,
    "{% extends '/etc/passwd' %}": NO_LOADER,
}
"""Templates that take memory, the stack, or what the sandbox keeps from them, and a part of the error."""


def error_of(template: str) -> str:
    try:
        return f"no error: {render_chat_template(template, MESSAGES)[:100]}"
    except MLCError as error:
        return str(error)


def test_bombs_are_short_errors():
    found = {template[:100]: (part, error_of(template)) for template, part in BOMBS.items()}
    assert {t: error[:100] for t, (part, error) in found.items() if part not in error or len(error) > 800} == {}


def test_line_of_a_syntax_error():
    with pytest.raises(MLCError) as caught:
        render_chat_template("a\nb\n{% endfor %}", MESSAGES)
    assert caught.value.where == ("line 3 of the chat template",)


def llama2_conversation() -> dict:
    return {
        "name": "llama-2",
        "system_template": "[INST] <<SYS>>\n{system_message}\n<</SYS>>\n\n",
        "system_message": "You are helpful.",
        "add_role_after_system_message": False,
        "roles": {"user": "<s>[INST]", "assistant": "[/INST]"},
        "role_templates": {"user": "{user_message}", "assistant": "{assistant_message}"},
        "seps": [" ", " </s>"],
        "role_content_sep": " ",
        "role_empty_sep": " ",
    }


def test_conversation_template():
    messages = [
        {"role": "user", "content": "a {assistant_message}"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    text = render_conversation(llama2_conversation(), messages)
    assert text == (
        "[INST] <<SYS>>\nYou are helpful.\n<</SYS>>\n\na {assistant_message} [/INST] b </s><s>[INST] c [/INST] "
    )
    with_system = render_conversation(
        llama2_conversation(), [{"role": "system", "content": "S"}, *messages[:1]], add_generation_prompt=False
    )
    assert with_system == "[INST] <<SYS>>\nS\n<</SYS>>\n\na {assistant_message} "


def test_reasoning_is_stripped_from_past_answers_only():
    template = {"roles": {"user": "U:", "assistant": "A:"}, "strip_reasoning_in_history": True}
    answer = {"role": "assistant", "content": "<think>x</think>\n\ny"}
    messages = [{"role": "user", "content": "1"}, answer, {"role": "user", "content": "2"}, answer]
    text = render_conversation(template, messages, add_generation_prompt=False)
    assert text == "U:1A:yU:2A:<think>x</think>\n\ny"


def test_an_unknown_role_lists_the_roles_of_the_template():
    with pytest.raises(MLCError, match="'tool'.*system, user, assistant"):
        render_conversation(llama2_conversation(), [{"role": "tool", "content": ""}])


FORKED = """
import os, sys
from mlc_runtime.chat_template import render_chat_template as render
assert render("{{ 1 }}", []) == "1"
pid = os.fork()
if pid == 0:
    print(render("{{ 2 }}", []), flush=True)
    sys.exit()  # runs the atexit handlers
assert os.waitpid(pid, 0)[1] == 0
from mlc_runtime import chat_template
process = chat_template._renderer._process
assert process.poll() is None
print(render("{{ 3 }}", []), chat_template._renderer._process is process)
"""


def test_a_forked_process_starts_its_own_renderer():
    ran = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("2\n3 True\n", "")
