"""Calls to KMS clients and retrievers, whoever wrote them: only our errors come out, and only answers of the right kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..encryption import SecretKey
from ..errors import BloomsealError, KeyAccessError
from .access import KmsAccessError, Problem
from .protocols import KeyRetriever, KmsClient

__all__ = ["call", "kms_name", "retrieve_key", "unwrap_key", "wrap_key"]


def kms_name(kms: object) -> str:
    """How messages name a client: by its class, never by its repr, which may hold a token."""
    return f"KMS client {type(kms).__name__}"


def call(kms: object, master_key: str, method: Callable[..., Any], *arguments: Any) -> Any:
    """``method(*arguments)``; every exception becomes a KeyAccessError.

    Foreign exceptions are named by their type only and leave no chain: their text may hold key bytes or a token.
    """
    try:
        return method(*arguments)
    except KeyAccessError:
        raise
    except BloomsealError as ours:
        failure = KeyAccessError(ours.what, hint=ours.hint)
    except PermissionError:
        failure = KmsAccessError.because(Problem.DENIED, master_key, kms_name(kms))
    except LookupError:
        failure = KmsAccessError.because(Problem.UNKNOWN, master_key, kms_name(kms))
    except (TimeoutError, ConnectionError) as error:
        failure = KmsAccessError.because(Problem.UNREACHABLE, master_key, kms_name(kms), detail=type(error).__name__)
    except Exception as error:
        failure = KmsAccessError.because(
            Problem.INVALID, master_key, kms_name(kms), detail=f"it raised {type(error).__name__}"
        )
    # Raised outside the handlers, so that not even __context__ remembers the foreign exception.
    raise failure


def wrap_key(kms: KmsClient, key: SecretKey, master_key: str) -> str:
    """The key wrapped by the KMS, as text. pyarrow lets its clients answer in bytes, so we do too."""
    wrapped = call(kms, master_key, kms.wrap_key, key.reveal(), master_key)
    if isinstance(wrapped, bytes | bytearray):
        wrapped = wrapped.decode("utf-8", "replace")
    if not isinstance(wrapped, str) or not wrapped or "\ufffd" in wrapped:
        raise KmsAccessError.because(Problem.INVALID, master_key, kms_name(kms), detail="wrap_key returned no text")
    return wrapped


def unwrap_key(kms: KmsClient, wrapped_key: str, master_key: str) -> SecretKey:
    """The key that the KMS unwrapped."""
    value = call(kms, master_key, kms.unwrap_key, wrapped_key, master_key)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, SecretKey):
        return value
    if not isinstance(value, bytes | bytearray) or len(value) not in (16, 24, 32):
        size = f"{len(value)} bytes" if isinstance(value, bytes | bytearray) else "no bytes"
        raise KmsAccessError.because(
            Problem.INVALID, master_key, kms_name(kms), detail=f"unwrap_key returned {size}, not an AES key"
        )
    return SecretKey(bytes(value))


def retrieve_key(retriever: KeyRetriever, key_metadata: bytes, column: str | None) -> SecretKey:
    """The key that a retriever found, checked to be one.

    Raises:
        KeyAccessError: the retriever has none, failed, or returned something else.
    """
    whose = "the footer" if column is None else f"column {column}"
    try:
        value = retriever.retrieve_key(key_metadata, column)
        if isinstance(value, SecretKey):
            return value
        if isinstance(value, bytes | bytearray):
            return SecretKey(bytes(value))
        failure = KeyAccessError(f"{type(retriever).__name__} returned no key for {whose}", column=column)
    except KeyAccessError as error:
        error.at(column=column)
        raise
    except Exception as error:
        failure = KeyAccessError(
            f"{type(retriever).__name__} failed for {whose}: it raised {type(error).__name__}", column=column
        )
    raise failure
