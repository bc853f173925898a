"""Made-up people in any number, from a seed.

Person number i is the same in every call, and i may lie outside the table: so the demonstration asks for people who
are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["COLUMN_KEYS", "FILTERED", "FPP", "SCHEMA", "People", "area_numbers"]

U64 = npt.NDArray[np.uint64]

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("ssn", pa.string()),
        ("email", pa.string()),
        ("birth_date", pa.date32()),
        ("diagnosis", pa.string()),
        ("balance", pa.decimal128(12, 2)),
        ("last_visit", pa.timestamp("us", "UTC")),
    ]
)
COLUMN_KEYS: Final = {"name": "pii", "ssn": "pii", "email": "pii", "birth_date": "pii", "diagnosis": "health"}
"""Column → master key."""
FILTERED: Final = ("ssn", "email")
FPP: Final = 0.001


def _words(text: str) -> list[str]:
    return text.split()


_FIRST: Final = _words(
    "James Mary Robert Patricia John Jennifer Michael Linda David Elizabeth William Barbara Richard Susan Joseph Jessica "
    "Thomas Sarah Carlos Karen Wei Nancy Daniel Lisa Matthew Maria Anthony Sandra Mark Ashley Hiroshi Emily Steven Kim "
    "Andrew Donna Ahmed Fatima Joshua Carol Kevin Amanda Brian Melissa Olga Stephanie Ivan Rebecca Priya Laura"
)
_LAST: Final = _words(
    "Smith Johnson Williams Brown Jones Garcia Miller Davis Rodriguez Martinez Hernandez Lopez Gonzalez Wilson Anderson "
    "Thomas Taylor Moore Jackson Martin Lee Perez Thompson White Harris Sanchez Clark Ramirez Lewis Robinson Walker Young "
    "Allen King Wright Scott Torres Nguyen Hill Flores Green Adams Nelson Baker Hall Rivera Campbell Mitchell Carter Roberts"
)
_HOSTS: Final = ("mail.example", "post.example", "inbox.example", "work.example")
_DIAGNOSES: Final = _words(
    "I10 E11.9 E78.5 J06.9 M54.5 F41.1 F32.9 K21.9 J45.909 N39.0 R51 Z00.00 G43.909 L20.9 B20 C50.919 C61 F10.20 O09.90 S93.401"
)

_GROUPS, _SERIALS = 99, 9999
_AREAS: Final = np.array([area for area in range(1, 900) if area != 666])
_NUMBERS: Final = len(_AREAS) * _GROUPS * _SERIALS
_STEP: Final = 387_420_491  # far from any multiple of the areas, so that neighbours in the table are none by number
_FIRST_BIRTH: Final = -14_610  # 1930-01-01
_BIRTH_DAYS: Final = 28_000
_FIRST_VISIT: Final = 1_735_689_600_000_000  # 2025-01-01, in microseconds
_VISIT_MICROS: Final = 360 * 86_400_000_000


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
        cents = (self._draw(who, 5) % np.uint64(2_000_000)).astype(np.int64) - 150_000
        diagnosis = np.minimum(self._uniform(who, 6) ** 2 * len(_DIAGNOSES), len(_DIAGNOSES) - 1).astype(np.int32)
        births = _FIRST_BIRTH + (self._draw(who, 4) % np.uint64(_BIRTH_DAYS)).astype(np.int32)
        visits = _FIRST_VISIT + (self._uniform(who, 7) * _VISIT_MICROS).astype(np.int64)
        first, last = self._names(who)
        columns = [
            pa.array(who.astype(np.int64)),
            pc.binary_join_element_wise(_taken(_FIRST, first), _taken(_LAST, last), " "),
            self.ssn(who),
            self.email(who),
            pa.array(births.astype(np.int32), pa.date32()),
            _taken(_DIAGNOSES, diagnosis),
            _decimals(cents, SCHEMA.field("balance").type),
            pa.array(visits, pa.int64()).cast(SCHEMA.field("last_visit").type),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def ssn(self, who: U64) -> pa.Array:
        """Social security numbers, different for different people."""
        return _ssn_texts((who * self._step + self._seed) % np.uint64(_NUMBERS))

    def email(self, who: U64) -> pa.Array:
        """Addresses, different for different people, on hosts that can't exist."""
        first, last = self._names(who)
        hosts = (self._draw(who, 3) % np.uint64(len(_HOSTS))).astype(np.int32)
        lower = [name.lower() for name in _FIRST], [name.lower() for name in _LAST]
        local = pc.binary_join_element_wise(_taken(lower[0], first), _taken(lower[1], last), ".")
        numbered = pc.binary_join_element_wise(local, pa.array(who).cast(pa.string()), "")
        return pc.binary_join_element_wise(numbered, _taken(_HOSTS, hosts), "@")

    def _names(self, who: U64) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        first = (self._uniform(who, 1) ** 1.5 * len(_FIRST)).astype(np.int32)
        last = (self._uniform(who, 2) ** 1.5 * len(_LAST)).astype(np.int32)
        return first, last

    def _uniform(self, who: U64, stream: int) -> npt.NDArray[np.float64]:
        return (self._draw(who, stream) >> np.uint64(11)).astype(np.float64) / (1 << 53)

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
    index = int(np.searchsorted(_AREAS, area))
    start = index * _GROUPS * _SERIALS
    return _ssn_texts(np.arange(start, start + _GROUPS * _SERIALS, dtype=np.uint64))


def _ssn_texts(numbers: U64) -> pa.Array:
    """AAA-GG-SSSS, laid down as bytes: 11 per text."""
    serials = numbers % np.uint64(_SERIALS) + np.uint64(1)
    groups = numbers // np.uint64(_SERIALS) % np.uint64(_GROUPS) + np.uint64(1)
    areas = _AREAS[(numbers // np.uint64(_SERIALS * _GROUPS)).astype(np.int64)]
    out = np.full((len(numbers), 11), ord("-"), dtype=np.uint8)
    for column, values, power in (
        (0, areas, 100), (1, areas, 10), (2, areas, 1),
        (4, groups, 10), (5, groups, 1),
        (7, serials, 1000), (8, serials, 100), (9, serials, 10), (10, serials, 1),
    ):  # fmt: skip
        out[:, column] = values.astype(np.int64) // power % 10 + ord("0")
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(11)
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _taken(words: tuple[str, ...] | list[str], indices: npt.NDArray[np.int32]) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(indices))


def _decimals(unscaled: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    words = np.empty((len(unscaled), 2), dtype="<i8")
    words[:, 0], words[:, 1] = unscaled, unscaled >> 63
    return pa.Array.from_buffers(kind, len(unscaled), [None, pa.py_buffer(words)])
