"""Jobs over tables too big for one machine: the same code as on one, a pack of files to a task."""

from .audit import TableAudit, audit
from .destruction import may_destroy
from .files import attach, verify
from .rotation import rekey, repair, rewrap

__all__ = ["TableAudit", "attach", "audit", "may_destroy", "rekey", "repair", "rewrap", "verify"]
