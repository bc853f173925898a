"""ORC files: their Bloom filter indexes read and probed (ORC specification, v1)."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from ..read.orc.file import OrcFile as OrcFile
    from ..read.orc.file import open_file as open_file
    from .rewrite.verbs import attach_filters as attach_filters
    from .rewrite.verbs import rekey as rekey
    from .rewrite.verbs import repair_filters as repair_filters
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
