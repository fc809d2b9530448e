"""Registered conversation templates render like the published chat templates and follow the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlc_errors import MLCError, UsageError
from mlc_toolchain.conversation import Conversation, load_template, template_names
from mlc_toolchain.conversation_check import check_conversation, special_tokens
from mlc_toolchain.conversation_match import PROBES
from mlc_toolchain.tokenizer import tokenizer_json as tj

DATA = Path(__file__).parents[1] / "data"
RENDERINGS = json.loads((DATA / "conv_renderings.json").read_text())
PUBLIC_NAMES = """
LM aya-23 chatml chatml_nosystem codellama_completion codellama_instruct deepseek deepseek_r1_llama deepseek_r1_qwen
deepseek_v2 deepseek_v3 dolly gemma3_instruction gemma_instruction glm gorilla gorilla-openfunctions-v2 gpt2 gpt_bigcode
hermes2_pro_llama3 hermes3_llama-3_1 llama-2 llama-3 llama-3_1 llama-4 llava llm-jp ministral3 ministral3_reasoning
mistral_default nemotron neural_hermes_mistral oasst olmo olmo2 open_hermes_mistral orion phi-2 phi-3 phi-3-vision phi-4
qwen2 qwen3 qwen3_5 qwen3_5_nothink redpajama_chat rwkv_world stablelm stablelm-2 stablelm-3b tinyllama_v1_0
wizard_coder_or_math wizardlm_7b
""".split()
OWN_NAMES = ["gpt_oss"]


def tokenizer(*added: str):
    """A tokenizer of single letters and `added` special tokens, whose ids follow."""
    vocab = {chr(97 + i): i for i in range(26)}
    tokens = [tj.added_token(26 + i, text, special=True) for i, text in enumerate(added)]
    return tj.load(tj.to_text(tj.assemble(tj.bpe(vocab, []), tokens)), where="test")


def test_every_public_template_is_registered():
    assert sorted(template_names()) == sorted([*PUBLIC_NAMES, *OWN_NAMES])
    assert set(special_tokens()) == {*PUBLIC_NAMES, *OWN_NAMES}


@pytest.mark.parametrize("name", [*PUBLIC_NAMES, *OWN_NAMES])
def test_registered_template_survives_the_public_schema(name):
    template = load_template(name)
    assert template.name == name
    again = Conversation.from_dict(json.loads(json.dumps(template.to_dict())), where=name)
    assert again == template
    assert all(any(token in text for text in texts_of(template)) for token in special_tokens()[name])


def texts_of(c: Conversation) -> list[str]:
    return [
        c.system_template,
        c.system_message,
        *c.roles.values(),
        *c.role_templates.values(),
        *c.seps,
        c.role_empty_sep,
        *c.stop_str,
    ]


@pytest.mark.parametrize("name", sorted(RENDERINGS))
def test_renders_what_the_published_template_renders(name):
    """Recorded from the models' own Jinja templates; "begin" is the text of the prefix token."""
    recorded = RENDERINGS[name]
    template = load_template(name)
    assert bool(recorded["begin"]) == bool(template.system_prefix_token_ids)
    assert recorded["rendered"]
    for probe, text in recorded["rendered"].items():
        messages = PROBES.get(probe) or PROBES["system message and reasoning"]
        assert recorded["begin"] + template.render(messages) == text, probe


def test_harmony_has_the_system_message_as_instructions_and_answers_in_the_final_channel():
    """As gpt-oss's published template, but for the date, which that one takes from the clock."""
    text = load_template("gpt_oss").render(PROBES["system message and history"])
    preamble, turns = text.split("<|start|>developer", 1)
    assert preamble.startswith("<|start|>system<|message|>You are ChatGPT, ")
    assert preamble.endswith("Channel must be included for every message.<|end|>")
    assert turns == (
        "<|message|># Instructions\n\nBe terse, ok.\n\n<|end|><|start|>user<|message|>Where is Zürich?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>In the north;\n\nnear {Baden}.<|end|>"
        "<|start|>user<|message|>And Bern?<|end|><|start|>assistant"
    )


def test_keys_are_in_the_public_order():
    keys = list(load_template("llama-3").to_dict())
    assert keys == [
        "name",
        "system_template",
        "system_message",
        "system_prefix_token_ids",
        "add_role_after_system_message",
        "roles",
        "role_templates",
        "messages",
        "seps",
        "role_content_sep",
        "role_empty_sep",
        "stop_str",
        "stop_token_ids",
        "strip_reasoning_in_history",
        "function_string",
        "use_function_calling",
    ]
    assert "system_prefix_token_ids" not in load_template("chatml").to_dict()


def test_unknown_template_lists_the_registered():
    with pytest.raises(UsageError, match=r"'llama_default' is not registered; expected auto or one of aya-23, chatml"):
        load_template("llama_default")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seps": []}, "seps has 0 strings; expected 1 or 2"),
        ({"seps": "x"}, 'seps is "x"; expected a list of strings'),
        ({"seps": ["a", 1]}, "expected a list of strings"),
        ({"roles": {"user": "U"}}, "has no role assistant"),
        ({"roles": {"user": 1, "assistant": ""}}, "expected an object of strings"),
        ({"stop_str": [""]}, "an empty string, which ends every answer at once"),
        ({"stop_token_ids": [True]}, "expected a list of token ids"),
        ({"stop_token_ids": [-1]}, "expected a list of token ids"),
        ({"role_templates": {"user": "hello"}}, r"expected {user_message} in it"),
        ({"system_message": None}, "system_message is null; expected a string"),
        ({"add_role_after_system_message": 1}, "expected true or false"),
        ({"messages": [["user", "x"]]}, "carries no history"),
        ({"greeting": "hi"}, "unknown keys: greeting"),
    ],
)
def test_schema_errors_name_key_and_value(change, message):
    data = {"roles": {"user": "U", "assistant": "A"}, "seps": [""], **change}
    with pytest.raises(MLCError, match=message) as error:
        Conversation.from_dict(data, where="some.json")
    assert error.value.where == ("some.json",)


def test_missing_tokens_and_ids_are_named():
    with pytest.raises(MLCError) as error:
        check_conversation(load_template("llama-3"), tokenizer("<|eot_id|>", "<|start_header_id|>"))
    assert error.value.message == (
        "the conversation template 'llama-3' needs the token <|end_header_id|>, "
        "the id 128000 (system_prefix_token_ids), the id 128001 (stop_token_ids), the id 128009 (stop_token_ids); "
        "expected in the tokenizer, which has 28 tokens"
    )


def test_a_template_that_fits_passes():
    check_conversation(load_template("chatml"), tokenizer("<|im_start|>", "<|im_end|>"))
