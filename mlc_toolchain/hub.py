"""Download from the Hugging Face Hub: the config first, and weights only if the model is supported.

huggingface_hub does the transfer, with its cache and environment variables: HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE,
HF_TOKEN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from huggingface_hub import (
    _CACHED_NO_EXIST,
    constants,
    errors,
    get_session,
    hf_hub_download,
    hf_hub_url,
    try_to_load_from_cache,
)

from mlc_errors import MLCError, ResourceError, UsageError
from mlc_toolchain.readers.base import CheckpointError, CheckpointReader, shown
from mlc_toolchain.readers.checkpoint import FORMATS, checked_formats, index_files, open_checkpoint
from mlc_toolchain.source_base import CONFIG, RepositorySource

PATTERN = re.compile(r"HF://(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class HubSource(RepositorySource):
    """A repository. Files are downloaded into the Hub's cache on demand, all from one commit.

    main: the file that the repository must have; it is downloaded first.
    """

    name: str
    revision: str | None = None
    main: str = CONFIG
    kind = "hub"

    @staticmethod
    def parse(text: str, main: str = CONFIG) -> HubSource:
        """Parse ``HF://owner/name[@revision]``."""
        match = PATTERN.fullmatch(text)
        if match is None:
            raise UsageError(f"got {shown(text)}; expected HF://owner/name or HF://owner/name@revision")
        return HubSource(match["name"], match["revision"], main)

    @cached_property
    def path(self) -> Path:  # type: ignore[override]  # read-only, as all of a frozen dataclass
        """The repository's folder in the cache, at one commit."""
        return self._fetch(self.main, self.revision).parent

    @cached_property
    def _is_offline(self) -> bool:
        """Whether to use only the cache; found by one request, because a download would retry for half a minute."""
        if constants.HF_HUB_OFFLINE:
            return True
        try:
            get_session().head(hf_hub_url(self.name, self.main), timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except Exception:  # whatever the transfer's libraries raise
            return True
        return False

    def file(self, name: str) -> Path | None:
        commit = self.path.name
        if try_to_load_from_cache(self.name, name, revision=commit) is _CACHED_NO_EXIST:
            return None
        try:
            return self._fetch(name, commit)
        except errors.EntryNotFoundError:
            return None

    def weights(self, source_format: str = "auto") -> CheckpointReader:
        for wanted in checked_formats(source_format):
            index, single, _ = FORMATS[wanted]
            found = self.file(index)
            if found is not None:
                for shard in index_files(found):
                    self._required(shard, found)
            if found is not None or self.file(single) is not None:
                return open_checkpoint(self.path, wanted)
        raise CheckpointError("the repository has no weights in a known format", where=[f"HF://{self.name}"])

    def _required(self, shard: str, index: Path) -> None:
        if self.file(shard) is None:
            raise CheckpointError(f"shard {shown(shard)} is missing from the repository", where=[str(index)])

    def _fetch(self, file: str, revision: str | None) -> Path:
        """The file in the cache. EntryNotFoundError propagates; other failures become MLCError."""
        try:
            return Path(hf_hub_download(self.name, file, revision=revision, local_files_only=self._is_offline))
        except errors.LocalEntryNotFoundError:
            if file != self.main and self._is_offline:
                raise errors.EntryNotFoundError(f"{file} is not in the cache") from None
            raise self._unreachable(file) from None
        except errors.EntryNotFoundError:
            if file == self.main:
                raise CheckpointError(f"the repository has no {self.main}", where=[f"HF://{self.name}"]) from None
            raise
        except errors.GatedRepoError:
            raise self._refused("access to the repository is restricted", "accept its terms and set HF_TOKEN") from None
        except errors.RevisionNotFoundError:
            raise self._refused(f"the repository has no revision {shown(self.revision)}") from None
        except errors.RepositoryNotFoundError:
            raise self._refused(
                "there is no such repository, or it is private", "check the name, or set HF_TOKEN"
            ) from None
        except Exception as error:  # whatever the transfer's libraries raise: time-outs, closed connections, 5xx
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise self._unreachable(file, next(iter(str(error).splitlines()), type(error).__name__)) from None

    def _refused(self, message: str, hint: str | None = None) -> MLCError:
        return UsageError(message, where=[f"HF://{self.name}"], hint=hint)

    def _unreachable(self, file: str, why: str = "it is not in the cache and the Hub cannot be reached") -> MLCError:
        return ResourceError(
            f"cannot fetch {file}: {why}",
            where=[f"HF://{self.name}"],
            hint="run again when the network is there; finished files are kept",
        )
