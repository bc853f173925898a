"""The caller's expectation of a file. Nothing authenticates some of a file's bytes, and those decide nothing on their
own.

Under an encrypted footer anybody may rewrite the algorithm, ``aad_file_unique``, the stored AAD prefix and whether one
is to be supplied (FileCryptoMetaData, Parquet encryption, section 5.1), the footer's kind, and the key metadata. An
expectation is made once from a `DecryptionSpec` (or the policy behind it), and every opening passes through it: what it
does not allow is refused before a key is asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ..columns import covers, folded, meant_by
from ..decryption import DecryptionSpec
from ..encryption import Algorithm
from ..errors import Hint, PolicyError
from .schema import Schema

UNIQUE_BYTES: Final = 8
"""Length of aad_file_unique. The specification leaves it open; parquet-java and Arrow write 8, and so do we."""


class TableRules(Protocol):
    """What a policy says of a table's columns."""

    @property
    def encrypted_columns(self) -> Collection[str]: ...

    @property
    def partition_by(self) -> Collection[str]: ...

    @property
    def uniform(self) -> bool: ...

    @property
    def complete(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a file may be.

    Attributes:
        keyed: keys were given, so that the file is expected to be encrypted and its pages may be opened.
        prefixes: AAD prefixes, one of which the file was written with; empty where the caller supplies none.
        encrypted_columns: dotted paths of columns, or of groups above several, that must not be in plaintext.
        complete: no column may be.
        partition_by: columns whose values may stand in the names of folders, or in a table's log, all the same.
        allow_ctr: pages under AES_GCM_CTR_V1 may be opened.
        allow_plaintext: the file as a whole may be in plaintext.
    """

    keyed: bool = False
    prefixes: tuple[bytes, ...] = ()
    encrypted_columns: frozenset[str] = frozenset()
    complete: bool = False
    allow_ctr: bool = False
    allow_plaintext: bool = True
    partition_by: frozenset[str] = frozenset()

    @classmethod
    def of(cls, decryption: DecryptionSpec | None) -> Expectation:
        """The one that a specification states; none without one."""
        if decryption is None:
            return NO_EXPECTATION
        # DecryptionSpec encodes a str.
        prefixes: Any = [*([decryption.aad_prefix] if decryption.aad_prefix else ()), *decryption.previous_aad_prefixes]
        keyed_columns: Collection[str] = getattr(decryption.keys, "columns", ())
        return cls(
            keyed=True,
            prefixes=tuple(prefixes),
            encrypted_columns=frozenset(decryption.encrypted_columns) | frozenset(keyed_columns),
            complete=decryption.complete,
            allow_ctr=decryption.allow_ctr,
            allow_plaintext=decryption.allow_plaintext,
        )

    @classmethod
    def of_table(cls, decryption: DecryptionSpec | TableRules | None) -> Expectation:
        """Which columns of a table can be sealed ones, wherever its files lie; what else holds depends on the file."""
        if decryption is None:
            return NO_EXPECTATION
        if not isinstance(decryption, DecryptionSpec):
            return cls(
                encrypted_columns=frozenset(decryption.encrypted_columns),
                complete=decryption.uniform or decryption.complete,
                partition_by=frozenset(decryption.partition_by),
            )
        # Keys do not tell which columns files have under none of them; only a policy does.
        found = replace(cls.of(decryption), partition_by=frozenset(decryption.partition_by))
        return replace(found, complete=found.complete or not found.allow_plaintext)

    def plaintext_file(self) -> None:
        """A file without encryption.

        Raises:
            PolicyError: an encrypted one was expected.
        """
        if not self.allow_plaintext:
            raise PolicyError(
                "a plaintext file where an encrypted one was expected",
                hint=Hint.PLAINTEXT,
            )

    def algorithm(self, algorithm: Algorithm) -> None:
        """The file's word for how its pages are sealed.

        Raises:
            PolicyError: AES_GCM_CTR_V1 where it was not allowed. GCM's keystream is CTR's, one counter later: whoever
                relabels a GCM file, and puts 16 bytes in front of a page's ciphertext, would flip chosen bits of its
                values.
        """
        if self.keyed and not self.allow_ctr and algorithm is Algorithm.AES_GCM_CTR_V1:
            raise PolicyError(
                "the file says AES_GCM_CTR_V1: nothing authenticates its pages, nor, in an encrypted footer, that word",
                hint=Hint.CTR,
            )

    def prefix(self, stored: bytes | None, wanted: bool, unique: bytes) -> tuple[bytes, ...]:
        """The AAD prefixes to try, of a file with this EncryptionAlgorithm.

        Args:
            stored: ``aad_prefix``; wanted: ``supply_aad_prefix``; unique: ``aad_file_unique``.

        Raises:
            PolicyError: the prefix is missing, another one, or supplied to a file that knows of none; or bytes may have
                moved between the two, which are joined without a border: then ``part-1.bak`` opens as ``part-1``.
        """
        if not self.prefixes:
            if wanted and not stored and self.keyed:
                raise PolicyError(
                    "the file was written with an AAD prefix that it does not store", hint=Hint.AAD_PREFIX
                )
            return (stored or b"",)
        if len(unique) != UNIQUE_BYTES:
            raise PolicyError(
                f"an aad_file_unique of {len(unique)} bytes beside a supplied AAD prefix: only {UNIQUE_BYTES} keep the two apart"
            )
        if not stored:
            if not wanted:
                # Joining them would only ever fail to authenticate; saying so tells a moved file from a damaged one.
                raise PolicyError(
                    "an AAD prefix was supplied, but the file was written without one", hint=Hint.NO_AAD_PREFIX
                )
            return self.prefixes
        if stored not in self.prefixes:
            raise PolicyError(
                "the AAD prefix stored in the file is not the expected one: the file may be another place's"
            )
        return (stored,)

    def must_be_encrypted(self, column: str) -> bool:
        """Whether the column at this dotted path must be encrypted."""
        return self.complete or meant_by(column, self.encrypted_columns) is not None

    def name(self, column: str) -> None:
        """What the file calls a column.

        Raises:
            PolicyError: it is the name of an encrypted column in another case or Unicode form. Some readers (Spark)
                take the one for the other, and so would take what stands there under no key, or under another one.
        """
        if (meant := meant_by(column, self.encrypted_columns)) is not None and not covers(meant, column):
            raise PolicyError(
                f"the column's name differs from that of {meant}, which must be encrypted, in its case or Unicode form alone",
                column=column,
                hint="name the column as the file does, if the file is right",
            )

    def names(self, schema: Schema) -> None:
        """All that the file calls columns, where it lacks one that must be encrypted. What is lacking is read as nulls.

        Raises:
            PolicyError: it has the column under a name that could be taken for it, and nobody looks at that one
                otherwise.
        """
        if not all(map(schema.has, self.encrypted_columns)):
            for leaf in schema.leaves:
                self.name(leaf.name)

    def outside(self, column: str) -> None:
        """A column whose values stand in the names of folders, or in a table's log. Nothing seals those: they rule
        files out, and fill a column, only where it can't be a sealed one.

        Raises:
            PolicyError: it must be encrypted, or could be taken for one that must, or for a group above one; or any
                column may be sealed, and this one was not said to be in such a place. Whoever moves a file into a
                folder of his choice would say what its rows hold, and have others left out unopened.
        """
        meant = meant_by(column, self.encrypted_columns) or next(
            (name for name in sorted(self.encrypted_columns) if covers(folded(column), folded(name))), None
        )
        if meant is not None:
            raise PolicyError(
                f"{meant} must be encrypted, and the name of a folder, or the table's log, would give its values",
                column=column,
                hint=Hint.NO_PARTITIONS,
            )
        if self.complete and column not in self.partition_by:
            raise PolicyError(
                "the column may be a sealed one, and the name of a folder, or the table's log, would give its values",
                column=column,
                hint=Hint.PARTITION_BY,
            )

    def plaintext_column(self, column: str) -> None:
        """A column chunk without encryption.

        Raises:
            PolicyError: the column must be encrypted.
        """
        if self.must_be_encrypted(column):
            raise PolicyError("the column is in plaintext where an encrypted one was expected", column=column)


NO_EXPECTATION: Final = Expectation()
"""Whoever names no keys reads what is in clear, and is told nothing about the rest."""
