"""gen_config: the reference folder reproduced, SmolLM2 from GGUF and from a folder, overrides, estimates, errors."""

from __future__ import annotations

import json
import shutil
from math import prod
from pathlib import Path

import pytest

from mlc_errors import MLCError, UnsupportedError, UsageError
from mlc_runtime.chat_template import render_chat_template, render_conversation
from mlc_toolchain.chat_config import read_chat_config
from mlc_toolchain.conversation_match import PROBES
from mlc_toolchain.conversion_plan import describe_model
from mlc_toolchain.gen_config import GenConfigOptions, GenConfigReport, gen_config
from mlc_toolchain.memory_estimate import parse_bytes
from mlc_toolchain.model_sizes import SizeOverrides
from mlc_toolchain.source import PRESETS
from model_zoo.registry import ARCHITECTURES
from quantization.schemes import get_scheme

DATA = Path(__file__).parents[1] / "data"
REFERENCE, SOURCE = DATA / "reference" / "q4f16_1", DATA / "reference" / "source"
PARAMETER_COUNTS = json.loads((DATA / "conv_parameter_counts.json").read_text())


def run(source: str | Path, output: Path, **options) -> GenConfigReport:
    return gen_config(GenConfigOptions(str(source), options.pop("quantization", "q4f16_1"), output, **options))


def config_of(folder: Path) -> dict:
    return json.loads((folder / "mlc-chat-config.json").read_text())


def reference_source(folder: Path, **files: dict | str) -> Path:
    """A copy of the reference checkpoint's small files; ``files`` changes keys of an object, or a whole text."""
    folder.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(SOURCE / name, folder / name)
    for name, changes in files.items():
        path = folder / f"{name}.json"
        path.write_text(changes if isinstance(changes, str) else json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_the_reference_folder_is_reproduced(tmp_path):
    """Byte for byte. The public tool recorded a template whose tokens the tokenizer lacks, so the check is off."""
    report = run(SOURCE, tmp_path / "out", conv_template="llama-3", check_template=False)
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (REFERENCE / path.name).read_bytes(), path.name
    assert report.files == ("tokenizer.json", "tokenizer_config.json", "mlc-chat-config.json")
    index = json.loads((REFERENCE / "tensor-cache.json").read_text())
    assert report.weight_bytes == index["metadata"]["ParamBytes"]


def test_a_named_template_must_fit_the_tokenizer(tmp_path):
    with pytest.raises(MLCError, match=r"'llama-3' needs the token <\|start_header_id\|>") as error:
        run(SOURCE, tmp_path / "out", conv_template="llama-3")
    assert "--conv-template auto" in error.value.hint
    assert not (tmp_path / "out").exists()


def test_smollm2_from_gguf(smollm2_gguf, tmp_path):
    report = run(smollm2_gguf, tmp_path, memory="1GiB")
    config = config_of(tmp_path)
    assert config["model_config"]["num_hidden_layers"] == 30
    assert (config["vocab_size"], config["active_vocab_size"], config["context_window_size"]) == (49152, 49152, 8192)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 2)
    assert config["tokenizer_files"] == ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
    assert config["conv_template"]["name"] == "chatml"
    assert config["conv_template"]["stop_token_ids"] == [2]
    assert config["conv_template"]["system_message"].startswith("You are a helpful AI assistant named SmolLM")
    # 30 layers x 3 KV heads x 64 x keys and values x 2 bytes
    assert report.kv_bytes_per_token == 30 * 3 * 64 * 2 * 2
    assert report.kv_full_context_bytes == 8192 * report.kv_bytes_per_token
    assert report.largest_batch == (2**30 - report.weight_bytes) // report.kv_full_context_bytes == 5
    assert report.notes == ()


def test_smollm2_from_a_folder_is_the_same(smollm2_gguf, tmp_path):
    """A Hugging Face folder with SmolLM2's tokenizer and config gives the configuration that its GGUF file gives."""
    from transformers import LlamaConfig

    run(smollm2_gguf, tmp_path / "gguf")
    folder = tmp_path / "folder"
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49152}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    rope = {"rope_theta": 100000.0, "rope_type": "default"}
    LlamaConfig(**sizes, **heads, **ids, max_position_embeddings=8192, rope_parameters=rope).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tmp_path / "gguf" / name, folder / name)
    run(folder, tmp_path / "out")
    assert config_of(tmp_path / "out") == config_of(tmp_path / "gguf")


CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
    "' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token}}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
ODD = (
    "{% for m in messages %}{{ '(' ~ m.role ~ ')' ~ m.content ~ ('.' if m.role == 'user' else '!') }}{% endfor %}"
    "{% if add_generation_prompt %}(assistant)>{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "name", "differs"),
    [
        (CHATML, "chatml", {"one turn", "history"}),
        (INST, "mistral_default", set()),
        (ODD, None, {"one turn", "history"}),
    ],
)
def test_auto_records_what_renders_the_same(tmp_path, template, name, differs):
    """Prompts equal transformers' apply_chat_template; those of the recorded template too, except for ``differs``."""
    from transformers import AutoTokenizer

    source = reference_source(tmp_path / "source", tokenizer_config={"chat_template": template})
    run(source, tmp_path / "out")
    theirs = AutoTokenizer.from_pretrained(source)
    config = config_of(tmp_path / "out")
    ours = (tmp_path / "out" / "chat_template.jinja").read_text()
    begin = "<s>" * len(config["conv_template"].get("system_prefix_token_ids", ()))
    for probe, messages in PROBES.items():
        if template == INST and messages[0]["role"] == "system":
            continue
        expected = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert render_chat_template(ours, messages, bos_token="<s>", eos_token="</s>") == expected
        recorded = begin + render_conversation(config["conv_template"], messages)
        assert (recorded == expected) == (probe not in differs), probe
    assert config["conv_template"].get("name") == name


def test_auto_takes_over_the_checkpoints_system_message(tmp_path):
    source = reference_source(tmp_path / "source")
    shutil.copyfile(DATA / "conv_chatml.jinja", source / "chat_template.jinja")
    report = run(source, tmp_path / "out")
    conversation = config_of(tmp_path / "out")["conv_template"]
    assert report.conv_template == "chatml, with the checkpoint's own template"
    assert (conversation["name"], conversation["system_message"], conversation["stop_str"]) == (
        "chatml",
        "Be kind.",
        [],
    )
    assert report.notes == ()


def test_the_date_in_a_template_is_reported(tmp_path):
    template = "{{ strftime_now('%Y') }}" + CHATML
    source = reference_source(tmp_path / "source", tokenizer_config={"chat_template": template})
    notes = run(source, tmp_path / "out").notes
    assert any("prints the current date" in note for note in notes)


def test_a_named_template_replaces_the_checkpoints_own(tmp_path):
    source = reference_source(tmp_path / "source", tokenizer_config={"chat_template": CHATML})
    out = tmp_path / "out"
    run(source, out)
    assert (out / "chat_template.jinja").read_text() == CHATML
    report = run(source, out, conv_template="redpajama_chat")
    assert report.conv_template == "redpajama_chat"
    assert not (out / "chat_template.jinja").exists()
    assert "chat_template" not in json.loads((out / "tokenizer_config.json").read_text())
    assert config_of(out)["conv_template"]["name"] == "redpajama_chat"


def tiny(model_type: str, folder: Path) -> dict:
    """A tiny config of `model_type` saved by transformers 5, beside the reference tokenizer; returns it in 4's keys."""
    import transformers

    sizes = {"vocab_size": 1003, "hidden_size": 100, "num_hidden_layers": 2, "num_attention_heads": 5}
    if model_type == "gpt2":
        config = transformers.GPT2Config(vocab_size=1003, n_embd=100, n_layer=2, n_head=5, n_positions=64)
    else:
        classes = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig}
        classes["qwen2"] = transformers.Qwen2Config
        rope = {"rope_theta": 500000.0, "rope_type": "default"}
        extra = {"num_key_value_heads": 1, "intermediate_size": 136, "max_position_embeddings": 64}
        config = classes[model_type](**sizes, **extra, rope_parameters=rope)
    config.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(SOURCE / name, folder / name)
    saved = json.loads((folder / "config.json").read_text())
    rope = saved.pop("rope_parameters", {})
    return saved | ({"rope_theta": rope["rope_theta"], "rope_scaling": None} if rope else {})


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "mistral", "qwen2"])
def test_checkpoints_of_transformers_4_and_5(model_type, tmp_path):
    old = tiny(model_type, tmp_path / "new")
    run(tmp_path / "new", tmp_path / "out5")
    config = config_of(tmp_path / "out5")
    assert (config["vocab_size"], config["active_vocab_size"], config["context_window_size"]) == (1003, 283, 64)
    theta = config["model_config"].get("rope_theta" if model_type == "qwen2" else "position_embedding_base")
    assert theta == (None if model_type == "gpt2" else 500000.0)
    (tmp_path / "new" / "config.json").write_text(json.dumps(old))
    run(tmp_path / "new", tmp_path / "out4")
    assert config_of(tmp_path / "out4") == config
    architecture = ARCHITECTURES[model_type].config
    again = architecture.from_hf(config["model_config"])
    assert (again.num_hidden_layers, again.hidden_size, again.head_dim) == (2, 100, 20)


def test_overrides(tmp_path):
    sizes = SizeOverrides(
        context_window_size=128, tensor_parallel_shards=2, pipeline_parallel_stages=2, max_batch_size=4
    )
    report = run(SOURCE, tmp_path, sizes=sizes)
    config = config_of(tmp_path)
    assert (config["context_window_size"], config["prefill_chunk_size"]) == (128, 128)
    assert (config["tensor_parallel_shards"], config["pipeline_parallel_stages"]) == (2, 2)
    assert config["model_config"]["max_batch_size"] == 4
    assert config["model_config"]["context_window_size"] == 128
    assert report.kv_full_context_bytes == 128 * report.kv_bytes_per_token


def test_a_longer_context_than_trained_is_reported(tmp_path):
    report = run(SOURCE, tmp_path, sizes=SizeOverrides(context_window_size=1024))
    assert "a context of 1024 tokens is beyond the 256 that the model is configured for" in report.notes


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {"sliding_window_size": 64},
            "--sliding-window-size cannot be set: llama has no sliding_window_size; it takes",
        ),
        ({"context_window_size": 0}, "--context-window-size is 0; expected 1 to 2147483647"),
        ({"prefill_chunk_size": 512}, "--prefill-chunk-size is 512; expected at most the context window of 256 tokens"),
        ({"tensor_parallel_shards": 3}, "--tensor-parallel-shards is 3; expected a divisor of num_attention_heads, 4"),
        ({"tensor_parallel_shards": 4}, "--tensor-parallel-shards is 4; expected a divisor of num_key_value_heads, 2"),
        ({"pipeline_parallel_stages": 3}, "--pipeline-parallel-stages is 3; expected at most the 2 layers"),
        ({"max_batch_size": 2**40}, "--max-batch-size is 1099511627776; expected"),
    ],
)
def test_overrides_that_the_model_cannot_take(sizes, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(SOURCE, tmp_path / "out", sizes=SizeOverrides(**sizes))
    assert not (tmp_path / "out").exists()


def test_generation_defaults(tmp_path):
    source = reference_source(
        tmp_path / "source",
        config={"repetition_penalty": 1.1, "top_p": 0.5, "bos_token_id": 5},
        generation_config={"temperature": None, "eos_token_id": [7, 8], "pad_token_id": -1, "bos_token_id": None},
    )
    run(source, tmp_path / "out")
    config = config_of(tmp_path / "out")
    assert (config["temperature"], config["top_p"], config["repetition_penalty"]) == (1.0, 0.9, 1.1)
    assert config["eos_token_id"] == [7, 8, 2]  # includes the tokenizer's end token
    assert (config["bos_token_id"], config["pad_token_id"]) == (5, 0)
    assert config["conv_template"]["stop_token_ids"] == [7, 8, 2]


def test_filters_are_written_where_the_checkpoint_has_them(tmp_path):
    given = {"top_k": 20, "min_p": 0.05, "typical_p": 0.9}
    run(reference_source(tmp_path / "source", generation_config=given), tmp_path / "out")
    config = config_of(tmp_path / "out")
    assert {name: config[name] for name in given} == given
    assert read_chat_config(tmp_path / "out").top_k == 20
    run(SOURCE, tmp_path / "plain")
    assert not {"top_k", "min_p", "typical_p"} & set(config_of(tmp_path / "plain"))


def test_ids_beyond_the_tokenizer_are_left_out(tmp_path):
    source = reference_source(tmp_path / "source", generation_config={"eos_token_id": [2, 50256]})
    report = run(source, tmp_path / "out")
    assert config_of(tmp_path / "out")["eos_token_id"] == 2
    assert "eos_token_id 50256 is left out: the tokenizer has the ids 0 to 282" in report.notes


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": {"vocab_size": 282}}, "has a vocabulary of 282; the tokenizer has ids up to 282"),
        ({"generation_config": {"temperature": "hot"}}, "temperature is hot; expected a number of at least 0"),
        ({"generation_config": {"top_p": 0}}, "top_p is 0; expected a number above 0, up to 1"),
        ({"generation_config": {"top_k": 1.5}}, "top_k is 1.5; expected an integer of at least 0"),
        ({"generation_config": {"min_p": "x"}}, "min_p is x; expected a number from 0 to 1"),
        ({"generation_config": {"eos_token_id": [1.5]}}, r"eos_token_id is \[1.5\]; expected a token id or a list"),
        ({"generation_config": "[]"}, "got a JSON list; expected an object"),
        ({"tokenizer_config": {"eos_token": 7}}, "eos_token is '7'; expected a string"),
        ({"tokenizer_config": {"chat_template": "{% for x in y %}"}}, "the chat template failed: "),
        ({"config": {"model_type": None}}, "model_type"),
    ],
)
def test_errors_leave_no_output(files, message, tmp_path):
    source = reference_source(tmp_path / "source", **files)
    with pytest.raises(MLCError, match=message):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unknown_names(tmp_path):
    with pytest.raises(UsageError, match="conversation template 'llama3' is not registered"):
        run(SOURCE, tmp_path, conv_template="llama3")
    with pytest.raises(UsageError, match="q4f16_9"):
        run(SOURCE, tmp_path, quantization="q4f16_9")
    with pytest.raises(UnsupportedError, match="model_type: got 'klingon'"):
        run(SOURCE, tmp_path, model_type="klingon")


def test_the_checkpoints_folder_is_not_written_to(tmp_path):
    source = reference_source(tmp_path / "source")
    before = sorted(path.name for path in source.iterdir())
    with pytest.raises(UsageError, match="the output folder is the checkpoint's own"):
        run(source, source)
    assert sorted(path.name for path in source.iterdir()) == before


def test_output_is_deterministic_and_rereadable(tmp_path):
    run(SOURCE, tmp_path / "a")
    run(SOURCE, tmp_path / "b")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    assert read_chat_config(tmp_path / "a").to_dict() == config_of(tmp_path / "a")


def test_presets(tmp_path):
    assert len(PARAMETER_COUNTS) >= 20
    assert sorted(path.stem for path in PRESETS.glob("*.json")) == sorted(PARAMETER_COUNTS)
    report = run("llama-3.1-8b-instruct", tmp_path, sizes=SizeOverrides(context_window_size=8192), memory="24 GiB")
    config = config_of(tmp_path)
    assert config["model_config"]["rope_scaling"]["factor"] == 8.0
    assert config["tokenizer_files"] == []
    assert config["eos_token_id"] == [128001, 128008, 128009]
    assert report.kv_bytes_per_token == 32 * 8 * 128 * 2 * 2
    assert report.largest_batch == 19


def test_recurrent_states_count_for_each_sequence(tmp_path):
    report = run("granite-4.0-h-tiny", tmp_path / "a", memory="12GiB", sizes=SizeOverrides(context_window_size=4096))
    keys_and_values, states = 4 * 2 * 4 * 128 * 2 * 4096, 36 * 4 * (3 * (3072 + 256) + 3072 * 128)
    assert report.kv_full_context_bytes == keys_and_values + states
    assert report.largest_batch == (12 * 2**30 - report.weight_bytes) // (keys_and_values + states)
    assert run("mamba-130m", tmp_path / "b", memory="9MB").notes[-1].endswith("the weights alone take more")


def test_a_memory_that_is_too_small_reports_what_would_fit(tmp_path):
    report = run("llama-3.1-8b-instruct", tmp_path, memory="16GiB")
    tokens = (16 * 2**30 - report.weight_bytes) // report.kv_bytes_per_token
    assert report.largest_batch == 0
    assert report.notes[-1] == f"not one sequence of full context fits; --context-window-size {tokens} would fit"
    assert run("llama-3.1-8b-instruct", tmp_path, memory="1GB").notes[-1].endswith("the weights alone take more")


@pytest.mark.parametrize("name", sorted(PARAMETER_COUNTS))
def test_presets_have_the_published_number_of_parameters(name):
    config = json.loads((PRESETS / f"{name}.json").read_text())
    parameters = describe_model(config, "auto", get_scheme("q0f16")).parameters
    total = sum(map(prod, parameters.values()))
    if config["model_type"] == "gpt2":  # its tied head is a parameter of its own here
        total -= prod(parameters["lm_head.weight"])
    if config["model_type"] == "deberta-v2":  # products with its table of positions are parameters here, it is not
        total -= sum(prod(shape) for name, shape in parameters.items() if ".pos_" in name)
        total += (2 * config["position_buckets"] + 2) * config["hidden_size"]  # with its norm
    assert total == PARAMETER_COUNTS[name]


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GiB", 8 * 2**30), ("500 MB", 500_000_000), ("1.5gb", 1_500_000_000), ("64k", 64_000), ("1024", 1024)],
)
def test_amounts_of_memory(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8 GiBs", "1e9", "8iB"])
def test_no_amounts_of_memory(text):
    with pytest.raises(UsageError, match="not an amount of memory"):
        parse_bytes(text)


def test_unknown_keys_are_refused_by_name(tmp_path):
    source = reference_source(tmp_path / "source", config={"mamba_d_state": 16, "use_cache": True})
    with pytest.raises(UnsupportedError, match="mamba_d_state: llama models have no such key"):
        run(source, tmp_path / "out")
