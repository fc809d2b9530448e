"""HF:// sources against a local server that imitates the Hub."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlc_errors import UsageError
from mlc_toolchain.hub import HubSource
from mlc_toolchain.source import resolve_source

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "tests" / "data" / "reference"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SMALL_BLOCKS = """
import sys
from huggingface_hub import constants
from mlc_cli.__main__ import main
constants.DOWNLOAD_CHUNK_SIZE = 100_000
sys.exit(main())
"""  # a download is resumed after the last whole block, which has 10 MB
REVISIONS = ("main", "v1", COMMIT)


class Hub:
    """Serves repositories (name -> {file: bytes}) to huggingface_hub."""

    def __init__(self, repositories):
        self.repositories = repositories
        self.requests = []
        self.cuts = []  # lengths after which the next answers break off
        self.forbidden = set()
        self.gated = {}  # repository -> the status with which it is refused
        self.ranges = []  # of the weights: where each answer began
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def fetched(self):
        return [path.rpartition("/")[2] for method, path in self.requests if method == "GET"]

    def _handler(hub):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                self.answer(body=False)

            def do_GET(self):
                self.answer(body=True)

            def answer(self, body):
                if self.path.startswith("/api/"):
                    return self.refuse("EntryNotFound")
                hub.requests.append((self.command, self.path))
                owner, name, _, revision, file = self.path.lstrip("/").split("/", 4)
                files = hub.repositories.get(f"{owner}/{name}")
                if files is None:
                    self.refuse("RepoNotFound")
                elif f"{owner}/{name}" in hub.gated:
                    self.refuse("GatedRepo", hub.gated[f"{owner}/{name}"])
                elif revision not in REVISIONS:
                    self.refuse("RevisionNotFound")
                elif file not in files:
                    self.refuse("EntryNotFound")
                elif file in hub.forbidden and body:
                    self.refuse("Forbidden", 403)
                else:
                    self.send(files[file], body)

            def refuse(self, code, status=404):
                self.send_response(status)
                self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def send(self, data, body):
                tag, total = hashlib.sha1(data).hexdigest(), len(data)
                start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
                data = data[start:]
                self.send_response(206 if start else 200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{tag}"')
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
                self.end_headers()
                if body and self.path.endswith(".safetensors"):
                    hub.ranges.append(start)
                if body and hub.cuts and len(data) > hub.cuts[0]:
                    self.wfile.write(data[: hub.cuts.pop(0)])
                    self.close_connection = True
                elif body:
                    self.wfile.write(data)

            def log_message(self, *args):
                pass

        return Handler


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def hub():
    source = files_of(REFERENCE / "source")
    renamed = {**source, "config.json": source["config.json"].replace(b'"llama"', b'"unheard_of"')}
    marlin = {"quant_method": "gptq", "bits": 4, "group_size": 32, "checkpoint_format": "marlin"}
    packed = json.dumps({**json.loads(source["config.json"]), "quantization_config": marlin}).encode()
    own_file = {**source, "quantize_config.json": json.dumps({"bits": 5, "group_size": 32}).encode()}
    sharded = {name: data for name, data in source.items() if name != "model.safetensors"}
    names = json.loads(source["model.safetensors"][8 : 8 + int.from_bytes(source["model.safetensors"][:8], "little")])
    weight_map = {name: "weights.safetensors" for name in names if name != "__metadata__"}
    sharded["model.safetensors.index.json"] = json.dumps({"weight_map": weight_map}).encode()
    complete = {**sharded, "weights.safetensors": source["model.safetensors"]}
    repositories = {"tiny/llama": source, "tiny/new": renamed, "tiny/sharded": complete, "tiny/incomplete": sharded}
    repositories |= {"tiny/marlin": {**source, "config.json": packed}, "tiny/own_file": own_file}
    hub = Hub({**repositories, "tiny/compiled": files_of(REFERENCE / "q4f16_1")})
    yield hub
    hub.server.shutdown()


@pytest.fixture
def command(hub, tmp_path):
    """Runs a command; the cache is shared by the calls of one test."""

    def run(*words, **environment):
        proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
        settings = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_ETAG_TIMEOUT": "5"}
        return subprocess.run(
            [sys.executable, "-c", SMALL_BLOCKS, *map(str, words)],
            cwd=ROOT,
            env={**os.environ, **proxies, **settings, **environment},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def convert(command, tmp_path):
    def run(source, output="out", **environment):
        options = ("--quantization", "q4f16_1", "-o", tmp_path / output)
        return command("convert_weight", source, *options, **environment)

    return run


def weights(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


EXPECTED = {name: data for name, data in files_of(REFERENCE / "q4f16_1").items() if "shard" in name or "cache" in name}


def test_a_repository_is_converted_then_again_without_network(hub, convert, tmp_path):
    done = convert("HF://tiny/llama")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "out") == EXPECTED
    hub.requests.clear()
    again = convert("HF://tiny/llama", "again", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    assert weights(tmp_path / "again") == EXPECTED
    assert hub.requests == []


def test_shards_are_fetched_by_the_index(hub, convert, tmp_path):
    done = convert("HF://tiny/sharded@v1")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "out") == EXPECTED
    assert sorted(hub.fetched()) == ["config.json", "model.safetensors.index.json", "weights.safetensors"]


@pytest.mark.parametrize(
    ("name", "problem", "files"),
    [
        ("new", "unheard_of", ["config.json"]),
        ("marlin", "checkpoint_format: got 'marlin'", ["config.json"]),
        ("own_file", "bits: got 5", ["config.json", "quantize_config.json"]),
    ],
)
def test_an_unsupported_model_is_refused_before_its_weights_are_fetched(name, problem, files, hub, convert, tmp_path):
    refused = convert(f"HF://tiny/{name}")
    assert refused.returncode == 3
    assert problem in refused.stderr
    assert hub.fetched() == files
    assert not (tmp_path / "out").exists()


def test_a_missing_shard_is_reported_before_anything_is_written(convert, tmp_path):
    failed = convert("HF://tiny/incomplete")
    assert failed.returncode == 1
    assert "shard 'weights.safetensors' is missing from the repository" in failed.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [("HF://no/body", "no such repository"), ("HF://tiny/llama@v9", "no revision 'v9'")],
)
def test_names_that_do_not_exist(source, message, convert):
    failed = convert(source)
    assert failed.returncode == 2
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


def test_an_interrupted_download_is_resumed(hub, convert, tmp_path):
    hub.cuts = [300_000]
    done = convert("HF://tiny/llama")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "out") == EXPECTED
    assert hub.ranges == [0, 300_000]


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository(status, hub, convert, tmp_path):
    hub.gated = {"tiny/llama": status}
    refused = convert("HF://tiny/llama")
    assert refused.returncode == 2, refused.stderr
    assert "error: access to the repository is restricted" in refused.stderr
    assert "accept its terms and set HF_TOKEN" in refused.stderr
    assert hub.fetched() == [] and not (tmp_path / "out").exists()


def test_a_failing_download_is_an_error_and_the_next_run_completes(hub, convert, tmp_path):
    hub.forbidden = {"model.safetensors"}
    failed = convert("HF://tiny/llama")
    assert failed.returncode == 4, failed.stderr
    assert "error: cannot fetch model.safetensors" in failed.stderr
    assert not (tmp_path / "out").exists()
    hub.forbidden = set()
    done = convert("HF://tiny/llama")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("environment", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_without_cache_and_network(convert, environment):
    failed = convert("HF://tiny/llama", **environment)
    assert failed.returncode == 4 and "Retrying" not in failed.stderr
    assert "it is not in the cache and the Hub cannot be reached" in failed.stderr


def test_spelling_of_repositories():
    assert HubSource.parse("HF://a/b@refs/pr/1") == HubSource("a/b", "refs/pr/1")
    assert HubSource.parse("HF://a/b") == HubSource("a/b")
    for text in ("HF://a", "HF://a/b/c", "HF://a/b@", "HF://a/b c", "HF://"):
        with pytest.raises(UsageError):
            HubSource.parse(text)


def test_a_converted_model_is_compiled_and_opened(hub, command, tmp_path):
    library = tmp_path / "lib.so"
    compiled = command("compile", "HF://tiny/compiled", "--device", "cpu", "-o", library)
    assert compiled.returncode == 0, compiled.stderr
    assert hub.fetched() == ["mlc-chat-config.json"]
    options = ("--model-lib", library, "--raw", "--greedy", "--max-tokens", "3", "--prompt", "a", "--json")
    generated = command("generate", "HF://tiny/compiled", *options)
    assert generated.returncode == 0, generated.stderr
    assert len(json.loads(generated.stdout)["token_ids"]) == 3
    assert command("generate", "HF://tiny/compiled", *options, HF_HUB_OFFLINE="1").returncode == 0


def test_a_repository_without_a_configuration_is_not_compiled(command, tmp_path):
    refused = command("compile", "HF://tiny/llama", "-o", tmp_path / "lib.so")
    assert refused.returncode == 1
    assert "error: the repository has no mlc-chat-config.json" in refused.stderr


def test_what_is_run_is_prepared_from_the_hub(hub, command, tmp_path):
    def preview(model, **environment):
        done = command("generate", model, "-p", "x", "--json", "--dry-run", **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    report = preview("HF://tiny/llama")
    assert report["steps"] == ["convert", "configure", "compile"]
    assert set(hub.fetched()) == {"config.json"}
    assert report["weight_bytes"] == sum(len(data) for name, data in EXPECTED.items() if "shard" in name)
    assert preview("HF://tiny/llama", HF_HUB_OFFLINE="1")["library"] == report["library"]
    assert preview("https://huggingface.co/tiny/llama/")["library"] == preview("hf://tiny/llama")["library"]
    assert preview("HF://tiny/compiled")["steps"] == ["compile"]


def test_files_of_a_repository(command):
    missing = command("generate", "HF://tiny/llama:sub/model.gguf", "-p", "x", "--dry-run")
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (1, "error: the repository has no sub/model.gguf")
    with pytest.raises(UsageError, match="cannot convert 'config.json' of HF://tiny/llama; expected a .gguf file"):
        resolve_source("HF://tiny/llama:config.json")
