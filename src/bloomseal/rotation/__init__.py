"""Rotation: new wrapping, new data keys, encryption and decryption of many files, planned, journalled and reported."""

from .job import Job
from .jobs import Rekey, Rewrap, Seal, Unseal
from .local import plan, rotate
from .orc import Repair
from .outcome import Status

__all__ = [
    "Job",
    "Rekey",
    "Repair",
    "Rewrap",
    "Seal",
    "Status",
    "Unseal",
    "plan",
    "rotate",
]
