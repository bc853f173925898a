"""Made-up people in any number, from a seed.

Person number i is the same in every call, and i may lie outside the table: so the demonstration asks for people who
are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

U64 = npt.NDArray[np.uint64]

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("ssn", pa.string()),
        ("email", pa.string()),
        ("birth_date", pa.date32()),
        ("diagnosis", pa.string()),
    ]
)
COLUMN_KEYS: Final = {"name": "pii", "ssn": "pii", "email": "pii", "birth_date": "pii", "diagnosis": "health"}
"""Column → master key."""
FILTERED: Final = ("ssn", "email")
FPP: Final = 0.001

_FIRST: Final = (
    *("James", "Mary", "Robert", "Patricia", "John", "Jennifer", "Michael", "Linda", "Elizabeth", "Susan", "Jessica"),
    *("Carlos", "Wei", "Nancy", "Matthew", "Maria", "Hiroshi", "Emily", "Kim", "Ahmed", "Fatima", "Olga", "Ivan"),
)
_LAST: Final = (
    *("Smith", "Johnson", "Williams", "Brown", "Jones", "Garcia", "Miller", "Davis", "Rodriguez", "Martinez"),
    *("Lopez", "Wilson", "Thomas", "Moore", "Lee", "Harris", "Clark", "Walker", "Nguyen", "Hill", "Adams", "Carter"),
)
_HOSTS: Final = ("mail.example", "post.example", "inbox.example", "work.example")
_DIAGNOSES: Final = ("I10", "E11.9", "E78.5", "J06.9", "M54.5", "F41.1", "F32.9", "K21.9", "N39.0", "R51", "B20")

_GROUPS, _SERIALS = 99, 9999
_AREAS: Final = np.array([area for area in range(1, 900) if area != 666])
_NUMBERS: Final = len(_AREAS) * _GROUPS * _SERIALS
_STEP: Final = 387_420_491  # far from any multiple of the areas, so that neighbours in the table are none by number
_FIRST_BIRTH: Final = -14_610  # 1930-01-01
_BIRTH_DAYS: Final = 28_000


class People:
    """People numbered from 0.

    Args:
        seed: another seed makes other people.
    """

    def __init__(self, seed: int = 1) -> None:
        self._seed = np.uint64(seed)
        step = _STEP + 2 * seed
        while np.gcd(step, _NUMBERS) != 1:
            step += 1
        self._step = np.uint64(step)

    def tables(self, rows: int, size: int) -> Iterator[pa.Table]:
        """The first `rows` people, `size` at a time."""
        for start in range(0, rows, size):
            yield self.table(np.arange(start, min(start + size, rows), dtype=np.uint64))

    def table(self, who: U64) -> pa.Table:
        """The people of these numbers, an array of shape (n,)."""
        births = _FIRST_BIRTH + (self._draw(who, 4) % np.uint64(_BIRTH_DAYS)).astype(np.int32)
        first, last = self._chosen(who, 1, _FIRST), self._chosen(who, 2, _LAST)
        columns = [
            pa.array(who.astype(np.int64)),
            pc.binary_join_element_wise(first, last, " "),
            self.ssn(who),
            self.email(who),
            pa.array(births.astype(np.int32), pa.date32()),
            self._chosen(who, 6, _DIAGNOSES),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def ssn(self, who: U64) -> pa.Array:
        """Social security numbers, different for different people."""
        return _ssn_texts((who * self._step + self._seed) % np.uint64(_NUMBERS))

    def email(self, who: U64) -> pa.Array:
        """Addresses, different for different people, on hosts that can't exist."""
        first, last = self._chosen(who, 1, _FIRST), self._chosen(who, 2, _LAST)
        local = pc.utf8_lower(pc.binary_join_element_wise(first, last, "."))
        numbered = pc.binary_join_element_wise(local, pa.array(who).cast(pa.string()), "")
        return pc.binary_join_element_wise(numbered, self._chosen(who, 3, _HOSTS), "@")

    def _chosen(self, who: U64, stream: int, words: Sequence[str]) -> pa.Array:
        return pa.array(words).take(pa.array(self._draw(who, stream) % np.uint64(len(words))))

    def _draw(self, who: U64, stream: int) -> U64:
        """64 random bits per person and stream: the finaliser of SplitMix64 over a counter."""
        with np.errstate(over="ignore"):
            x = who + self._seed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(stream) * np.uint64(0xD1B54A32D192ED03)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed: U64 = x ^ (x >> np.uint64(31))
        return mixed


def area_numbers(area: int) -> pa.Array:
    """Every number that a social security number of this area can be: 989,901 of them.

    Args:
        area: the first three digits.
    """
    start = int(np.searchsorted(_AREAS, area)) * _GROUPS * _SERIALS
    return _ssn_texts(np.arange(start, start + _GROUPS * _SERIALS, dtype=np.uint64))


def _ssn_texts(numbers: U64) -> pa.Array:
    """AAA-GG-SSSS."""
    serials = numbers % np.uint64(_SERIALS) + np.uint64(1)
    groups = numbers // np.uint64(_SERIALS) % np.uint64(_GROUPS) + np.uint64(1)
    areas = _AREAS[(numbers // np.uint64(_SERIALS * _GROUPS)).astype(np.int64)]
    padded = [
        pc.utf8_lpad(pa.array(part).cast(pa.string()), width, "0")
        for part, width in ((areas, 3), (groups, 2), (serials, 4))
    ]
    return pc.binary_join_element_wise(*padded, "-")
