"""Rotation: new wrapping, new data keys, encryption and decryption of many files, planned, journalled and reported."""

from .jobs import Rekey, Rewrap, Seal, Unseal
from .local import plan, rotate
from .orc import Repair
from .reseal import Reseal

__all__ = [
    "Rekey",
    "Repair",
    "Reseal",
    "Rewrap",
    "Seal",
    "Unseal",
    "plan",
    "rotate",
]
