"""Another name for `storage.atomic.replace_durably`."""

from __future__ import annotations

from ..storage.atomic import replace_durably

__all__ = ["replace_durably"]
