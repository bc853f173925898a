"""Mutants of small files, made from their structure: what somebody with the storage, and maybe the footer key, can do
to them.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, replace

from bloomseal.core.encryption import Algorithm, ModuleCipher, ModuleType, SecretKey, module_aad
from bloomseal.core.errors import FormatError
from bloomseal.core.parquet.footer import FileCrypto, FooterKind, Peek, peek, seal_footer, sign_footer
from bloomseal.core.parquet.layout import MAGIC, MAGIC_ENCRYPTED, Column, FileMeta, Group, Meta
from bloomseal.core.storage.source import Source
from bloomseal.core.thrift import Struct
from support.small_files import FOOTER_KEY, SmallFile, small_file

__all__ = ["Mutant", "mutant", "with_claims"]

_TROUBLE = (b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\x00", b"\x19\xfc", b"\x1c", b"\x7f", b"\xff\xff\xff\xff\x07")
_NUMBERS = (-(1 << 63), -1, 0, 1, 2, 7, 8, 1 << 15, (1 << 31) - 1, 1 << 32, (1 << 63) - 1)


@dataclass(frozen=True)
class Mutant:
    """A mutated file.

    Attributes:
        what: the mutations, for the message of a failure.
        authentic: its footer is, though not this file's own: another file's, or changed and sealed again by the footer
            key's holder. Both may leave rows out.
    """

    data: bytes
    what: str
    authentic: bool = False


def mutant(small: SmallFile, seed: int) -> Mutant:
    """The mutant of one number; the same each time."""
    chance = random.Random(f"{small.kind} {seed}")  # to be repeated, not to be secret
    how = chance.choice((_exchanged, _replayed, _replayed, _spliced, _claims, _bytes, _bytes, _resealed))
    made = how(small, chance)
    if not made.authentic and chance.random() < 0.2:
        more = _bytes(replace(small, data=made.data), chance)
        made = Mutant(more.data, f"{made.what}; {more.what}")
    return replace(made, what=f"{small.kind} {seed}: {made.what}")


def _exchanged(small: SmallFile, chance: random.Random) -> Mutant:
    """Two modules in each other's place."""
    first, second = sorted(chance.sample(small.modules, 2), key=lambda module: module.start)
    data = small.data
    pieces = data[second.start : second.end], data[first.end : second.start], data[first.start : first.end]
    return Mutant(b"".join((data[: first.start], *pieces, data[second.end :])), f"{first} exchanged with {second}")


def _replayed(small: SmallFile, chance: random.Random) -> Mutant:
    """Modules of another file under the same keys, in their own places; now and then its footer too."""
    other = small_file(small.kind, 1)
    data, what = bytearray(small.data), []
    for module in chance.sample(small.modules, chance.randint(1, 4)):
        same = [
            m
            for m in other.modules
            if (m.kind, m.row_group, m.column, m.page) == (module.kind, module.row_group, module.column, module.page)
        ]
        if same and same[0].end - same[0].start == module.end - module.start:
            data[module.start : module.end] = other.data[same[0].start : same[0].end]
            what.append(str(module))
    if footer := chance.random() < 0.2:
        mine, theirs = _footer(small.data), _footer(other.data)
        data[mine.offset :] = other.data[theirs.offset :]
        what.append("the footer")
    return Mutant(bytes(data), f"of another file: {', '.join(what)}", footer)


def _spliced(small: SmallFile, chance: random.Random) -> Mutant:
    """A module copied over another one, cut or filled to its length; sometimes with a length prefix that fits."""
    first, second = chance.sample(small.modules, 2)
    data = bytearray(small.data)
    size = second.end - second.start
    piece = bytearray(small.data[first.start : first.end].ljust(size, b"\0")[:size])
    if chance.random() < 0.5:
        piece[:4] = (size - 4).to_bytes(4, "little")
    data[second.start : second.end] = piece
    return Mutant(bytes(data), f"{first} copied over {second}")


def _claims(small: SmallFile, chance: random.Random) -> Mutant:
    """What stands in clear before any key: algorithm, identity, prefix, key metadata; in a signed footer all of it."""
    seen = _footer(small.data)
    assert seen.algorithm is not None
    algorithm, inner = seen.algorithm.copy(), seen.inner()[1].copy()
    number = 1 if algorithm.struct(1) is not None else 2
    key_metadata, what = seen.key_metadata, chance.choice(("algorithm", "unique", "prefix", "supply", "key", "empty"))
    unique = inner.binary(2) or b""
    match what:
        case "algorithm":
            algorithm.remove(number)
            number = 3 - number
        case "unique":
            inner.set_binary(2, chance.choice((unique[:-1], unique + b"\0", b"", unique[::-1], b"\x02" + unique)))
        case "prefix":
            inner.set_binary(1, chance.choice((b"", b"table/part-0", b"table/part-1", unique)))
        case "supply":
            inner.set_boolean(3, True)
        case "key":
            key_metadata = chance.choice((b"", b"ks", b"kn", b"kf\0", b"{}", b'{"keyMaterialType":"PKMT1"}'))
        case _:
            inner = Struct()
    algorithm.set_struct(number, inner)
    return Mutant(with_claims(small.data, seen, algorithm, key_metadata), f"other {what}")


def with_claims(data: bytes, seen: Peek, algorithm: Struct | None = None, key_metadata: bytes | None = None) -> bytes:
    """The file with another algorithm, or other key metadata of its footer, in the place of what it claims."""
    algorithm = seen.algorithm if algorithm is None else algorithm
    key_metadata = seen.key_metadata if key_metadata is None else key_metadata
    assert algorithm is not None
    if seen.kind is FooterKind.ENCRYPTED:
        head = Struct()
        head.set_struct(1, algorithm)
        head.set_binary(2, key_metadata)
        end, magic = head.to_bytes() + seen.sealed, MAGIC_ENCRYPTED
    else:
        clear = Struct.parse(seen.clear, remember=FileMeta.ROW_GROUPS)
        clear.set_struct(FileMeta.ALGORITHM, algorithm)
        clear.set_binary(FileMeta.SIGNING_KEY, key_metadata)
        end, magic = clear.to_bytes() + seen.sealed, MAGIC
    return data[: seen.offset] + end + len(end).to_bytes(4, "little") + magic


def _bytes(small: SmallFile, chance: random.Random) -> Mutant:
    """One to four flips, cuts, repetitions and troublesome numbers; half of them in the footer."""
    data, what = bytearray(small.data), []
    for _ in range(chance.randint(1, 4)):
        start = _footer_start(data) if chance.random() < 0.5 else 0
        at, length = chance.randrange(start, len(data)), chance.randint(1, 24)
        match kind := chance.randrange(5):
            case 0 | 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                data[at : at + length] = b""
            case 3:
                data[at:at] = data[at : at + length]
            case _:
                piece = chance.choice(_TROUBLE)
                data[at : at + len(piece)] = piece
        what.append(f"{('flip', 'flip', 'cut', 'repetition', 'number')[kind]} at {at}")
        if len(data) < 16:
            break
    return Mutant(bytes(data), ", ".join(what))


def _resealed(small: SmallFile, chance: random.Random) -> Mutant:
    """Fields of the metadata changed, the footer sealed or signed again: nothing in it may be believed too far."""
    seen = _footer(small.data)
    algorithm, inner = seen.inner()
    crypto = FileCrypto(
        algorithm,
        inner.binary(1) or b"",
        inner.binary(2) or b"",
        True,
        seen.kind is FooterKind.SIGNED,
        seen.key_metadata,
    )
    cipher = ModuleCipher(SecretKey(FOOTER_KEY), Algorithm.AES_GCM_V1)
    clear = seen.clear or cipher.open(seen.sealed, ModuleType.FOOTER, module_aad(crypto.file_aad, ModuleType.FOOTER))
    footer = Struct.parse(clear, remember=FileMeta.ROW_GROUPS)
    what: list[str] = []
    with contextlib.suppress(FormatError):  # what was changed before may be in the way of the next change
        what.extend(_change(footer, chance) for _ in range(chance.randint(1, 3)))
    raw = footer.to_bytes()
    end = sign_footer(raw, crypto, cipher) if crypto.plaintext_footer else seal_footer(raw, crypto, cipher)
    return Mutant(small.data[: seen.offset] + end, f"resealed: {', '.join(what)}", True)


def _change(footer: Struct, chance: random.Random) -> str:
    groups = footer.elements(FileMeta.ROW_GROUPS)
    schema = footer.elements(FileMeta.SCHEMA)
    where = chance.choice(("file", "schema", "group", "chunk", "chunk", "meta", "order"))
    if not groups or not schema:
        return "nothing left"
    if where == "order":
        chance.shuffle(chance.choice((groups, schema)))
    elif where == "file":
        return f"file {_edit(footer, chance)}"
    elif where == "schema":
        at = chance.randrange(len(schema))
        element = Struct.parse(schema[at])
        where += f" {at} {_edit(element, chance)}"
        schema[at] = element.to_bytes()
    else:
        at = chance.randrange(len(groups))
        group = Struct.parse(groups[at], remember=Group.COLUMNS)
        if where == "group" or not (chunks := group.elements(Group.COLUMNS)):
            where += f" {at} {_edit(group, chance)}"
        else:
            column = chance.randrange(len(chunks))
            chunk = Struct.parse(chunks[column])
            meta = chunk.struct(Column.META)
            if where == "meta" and meta is not None:
                where += f" {at}.{column} {_edit(meta, chance)}"
                chunk.set_struct(Column.META, meta)
            else:
                where += f" {at}.{column} {_edit(chunk, chance)}"
            chunks[column] = chunk.to_bytes()
            group.set_list(Group.COLUMNS, chunks)
        groups[at] = group.to_bytes()
    footer.set_list(FileMeta.SCHEMA, schema)
    footer.set_list(FileMeta.ROW_GROUPS, groups)
    return where


def _edit(struct: Struct, chance: random.Random) -> str:
    """One field removed, copied to another number, or made another number."""
    fields = list(struct.fields)
    if not fields:
        return "empty"
    one = chance.choice(fields)
    match chance.randrange(4):
        case 0:
            struct.remove(one)
            return f"without {one}"
        case 1:
            other = chance.choice((*fields, Meta.BLOOM_OFFSET, Meta.BLOOM_LENGTH))
            struct.fields[other] = struct.fields[one]
            struct.fields = dict(sorted(struct.fields.items()))
            return f"{one} as {other}"
        case 2:
            number = chance.choice(_NUMBERS)
            struct.set_i64(one, number)
            return f"{one} = {number}"
        case _:
            number = chance.choice(_NUMBERS) % (1 << 31)
            struct.set_i32(one, number)
            return f"{one} = {number} (i32)"


def _footer(data: bytes) -> Peek:
    return peek(Source.memory(data))


def _footer_start(data: bytes | bytearray) -> int:
    length = int.from_bytes(data[-8:-4], "little")
    return max(0, len(data) - 8 - length) if length < len(data) else 0
