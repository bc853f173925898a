"""The signed table that attacks are made on."""

from __future__ import annotations

from support.signed_table import kept_table as kept_table
from support.signed_table import table as table
