"""OpenVINO GenAI with paged attention, the default of its LLM pipeline on x86. FILES is a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import openvino_genai

from peers.shapes import ROOM
from peers.workers.serve import serve

TOKENS_OF_A_STEP = 1 << 30  # prompts are computed whole, for the lowest latency


class OpenVino:
    """The pipeline with explicit steps."""

    def __init__(self, folder: Path, threads: int):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = TOKENS_OF_A_STEP
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
        self._handles: list[openvino_genai.GenerationHandle] = []
        self.version = f"openvino-genai {openvino_genai.__version__}"
        self.build = f"openvino {openvino.__version__}"

    def begin(self, prompts: list[list[int]]) -> list[int]:
        settings = openvino_genai.GenerationConfig(
            max_new_tokens=2 * ROOM, ignore_eos=True, do_sample=False, apply_chat_template=False
        )
        for number, prompt in enumerate(prompts):
            ids = openvino.Tensor(np.array([prompt], np.int64))
            self._handles.append(self._pipeline.add_request(number, ids, settings))
        return self._step()

    def step(self, count: int) -> list[list[int]]:
        return [self._step() for _ in range(count)]

    def end(self) -> None:
        for handle in self._handles:
            handle.cancel()
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        self._handles.clear()

    def _step(self) -> list[int]:
        while not all(handle.can_read() for handle in self._handles):
            self._pipeline.step()
        outputs = [next(iter(handle.read().values())) for handle in self._handles]
        return [output.generated_ids[-1] for output in outputs]


if __name__ == "__main__":
    serve(OpenVino)
