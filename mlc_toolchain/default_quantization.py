"""The default quantization of checkpoints."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from mlc_runtime.host import free_memory
from mlc_toolchain.calibration import SCHEME as CALIBRATED_IN
from mlc_toolchain.calibration import can_calibrate
from mlc_toolchain.checkpoint_config import checkpoint_config
from mlc_toolchain.convert_weight import ConvertOptions, plan_conversion
from mlc_toolchain.hub import HubSource
from mlc_toolchain.kept_form import keeps_form
from mlc_toolchain.model_sizes import SizeOverrides, model_sizes
from mlc_toolchain.source import ModelSource
from mlc_toolchain.source_tokenizer import source_tokenizer
from mlc_toolchain.writer import free_space
from model_zoo import registry

ACCURATE, COMPATIBLE = "q4f16_nl", "q4f16_1"
USABLE = 0.5
"""Maximum share of free memory and free disk space for the model during calibration."""

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quantization:
    """A quantization scheme, and the value for ``ConvertOptions.calibration``."""

    scheme: str
    calibration: str | None = None


def default_quantization(name: str, source: ModelSource, folder: Path, model_type: str = "auto") -> Quantization:
    """``q4f16_nl``, calibrated, the most accurate scheme of 4.5 bits (``docs/accuracy.md``), if possible.

    Else ``q4f16_1``: if the checkpoint already stores such codes, if the model does not generate text or has no
    tokenizer, or if there is not enough room for calibration. name: of the source, see ``resolve_source``. folder:
    where the weights will be written. model_type: see ``ConvertOptions``. Raises MLCError as ``plan_conversion`` does.
    """
    if _keeps_codes(name, source, folder, model_type):
        LOG.info("weights are stored as in %s, and are kept", COMPATIBLE)
        return Quantization(COMPATIBLE)
    if obstacle := _obstacle(source, folder, model_type):
        LOG.info("quantizing to %s without calibration: %s", COMPATIBLE, obstacle)
        return Quantization(COMPATIBLE)
    return Quantization(ACCURATE, "auto")


def _keeps_codes(name: str, source: ModelSource, folder: Path, model_type: str) -> bool:
    """Whether most quantized parameters of the checkpoint keep their codes in ``q4f16_1``."""
    if isinstance(source, HubSource):
        return False
    conversion = plan_conversion(ConvertOptions(name, COMPATIBLE, folder, model_type))
    formed = [task for task in conversion.tasks if task.format]
    kept = [task for task in formed if keeps_form(task.production.value, conversion.reader, conversion.scheme)]
    return 2 * sum(task.nbytes for task in kept) > sum(task.nbytes for task in formed)


def _obstacle(source: ModelSource, folder: Path, model_type: str) -> str:
    """The reason why the model cannot be calibrated; empty if it can."""
    config = checkpoint_config(source)
    sizes = model_sizes(config, model_type, CALIBRATED_IN, SizeOverrides())
    architecture = registry.get(sizes.model_type)
    if not can_calibrate(architecture, architecture.config.from_hf(config)):
        return f"{architecture.name} models do not continue text"
    if not isinstance(source, HubSource) and source_tokenizer(source) is None:
        return "there is no tokenizer"
    room = USABLE * min(free_memory(), free_space(folder))
    return f"that takes {sizes.weight_bytes} bytes of {room:.0f} usable ones" if sizes.weight_bytes > room else ""
