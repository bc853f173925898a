"""ORC files (ORC specification, v1). What only they need is public here; `bloomseal.open_file` opens them."""

from typing import TYPE_CHECKING

from .._lazy import lazily

if TYPE_CHECKING:
    from .rewrite.verbs import rekey as rekey
    from .rewrite.verbs import repair_filters as repair_filters
else:
    __all__, __getattr__, __dir__ = lazily(__name__)
