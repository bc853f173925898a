"""Laws of wrapping, of key material, and of the keyring under any sequence of changes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from bloomseal import Keyring, KeyTools
from bloomseal.core.encryption import SecretKey
from bloomseal.core.errors import KeyAccessError
from bloomseal.core.keys.material import KeyMaterial, KeyMetadata
from bloomseal.core.keys.wrapping import unwrap_locally, wrap_locally
from bloomseal.core.storage.ref import FileRef
from bloomseal.keytools import KmsAccessError
from bloomseal.keytools.kms_protocols import KeyState
from support.stand_ins import InMemoryKms

keys = st.sampled_from([16, 24, 32]).flatmap(lambda n: st.binary(min_size=n, max_size=n)).map(SecretKey)
texts = st.text(max_size=60)


@given(keys, keys, st.binary(max_size=40))
def test_what_was_wrapped_unwraps(key: SecretKey, under: SecretKey, aad: bytes) -> None:
    wrapped = wrap_locally(key, under, aad)
    assert unwrap_locally(wrapped, under, aad) == key
    assert wrap_locally(key, under, aad) != wrapped  # a fresh nonce each time


@given(keys, keys, st.binary(max_size=40), st.data())
def test_nothing_but_the_whole_unwraps(key: SecretKey, under: SecretKey, aad: bytes, data: st.DataObject) -> None:
    blob = bytearray(base64.b64decode(wrap_locally(key, under, aad)))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KeyAccessError):
        unwrap_locally(base64.b64encode(blob).decode(), under, aad)
    with pytest.raises(KeyAccessError):
        unwrap_locally(base64.b64encode(blob[: data.draw(st.integers(0, len(blob) - 1))]).decode(), under, aad)


@given(texts, keys)
def test_no_text_unwraps_by_accident(text: str, under: SecretKey) -> None:
    with pytest.raises(KeyAccessError):
        unwrap_locally(text, under, b"")


@given(texts, texts, st.booleans(), st.none() | st.tuples(texts, texts), texts, texts)
def test_material_passes_through_its_text(
    master: str, wrapped: str, footer: bool, kek: tuple[str, str] | None, instance: str, url: str
) -> None:
    material = KeyMaterial(
        master,
        wrapped,
        footer,
        kek[0] if kek else None,
        kek[1] if kek else None,
        (instance or "DEFAULT") if footer else None,
        (url or "DEFAULT") if footer else None,
    )
    for internal in (True, False):
        assert KeyMaterial.from_json(material.to_json(internal=internal)) == material
    assert KeyMetadata.from_bytes(KeyMetadata(material=material).to_bytes()).material == material
    assert KeyMetadata.from_bytes(KeyMetadata(reference=master).to_bytes()).reference == master


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from([*json.loads(KeyMaterial("kf", "d", True, "k", "w").to_json(internal=True)), "keyReference"])


@given(st.binary(max_size=300) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_metadata_or_refused(data: bytes) -> None:
    with contextlib.suppress(KeyAccessError):
        KeyMetadata.from_bytes(data)


@given(st.dictionaries(fields, json_values, min_size=1, max_size=3), st.booleans())
def test_altered_metadata_gives_the_key_or_an_access_error(changes: dict[str, Any], double: bool) -> None:
    tools = KeyTools(InMemoryKms(), double_wrapping=double)
    key, metadata = tools.for_file(FileRef("t")).new_key("kf", None, 128)
    altered = json.dumps({**json.loads(metadata), **changes}).encode()
    reader = KeyTools(InMemoryKms()).for_file(FileRef(os.devnull))
    with contextlib.suppress(KeyAccessError):
        assert reader.retrieve_key(altered, None) == key


class KeyringMachine(RuleBasedStateMachine):
    """A keyring beside a model: what was wrapped unwraps exactly while its version is enabled."""

    names = Bundle("names")
    blobs = Bundle("blobs")

    @initialize(passphrase=st.sampled_from([None, "secret"]))
    def start(self, passphrase: str | None) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.passphrase = passphrase
        self.path = Path(self.folder.name) / "keys.json"
        self.ring = Keyring(self.path, passphrase=passphrase, create=True)
        self.model: dict[str, list[KeyState]] = {}

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(target=names, name=st.text("abcä/:.", min_size=1, max_size=5), bits=st.sampled_from([128, 192, 256]))
    def create(self, name: str, bits: int) -> str:
        if name not in self.model:
            self.ring.create(name, bits=bits)
            self.model[name] = [KeyState.ENABLED]
        return name

    @rule(name=names)
    def rotate(self, name: str) -> None:
        if all(state is KeyState.DESTROYED for state in self.model[name]):
            with pytest.raises(KmsAccessError):
                self.ring.rotate(name)
        else:
            self.ring.rotate(name)
            self.model[name].append(KeyState.ENABLED)

    @rule(name=names, data=st.data(), state=st.sampled_from([KeyState.ENABLED, KeyState.DISABLED, KeyState.DESTROYED]))
    def change(self, name: str, data: st.DataObject, state: KeyState) -> None:
        states = self.model[name]
        version = data.draw(st.none() | st.integers(1, len(states)))
        act = {"enabled": self.ring.enable, "disabled": self.ring.disable, "destroyed": self.ring.destroy}[state.value]
        if version is not None and states[version - 1] is KeyState.DESTROYED and state is not KeyState.DESTROYED:
            with pytest.raises(KmsAccessError):
                act(name, version)
            return
        act(name, version)
        for at, old in enumerate(states):
            if version in (None, at + 1) and old is not KeyState.DESTROYED:
                states[at] = state

    @rule(target=blobs, name=names)
    def wrap(self, name: str) -> tuple[str, int, str, bytes]:
        secret = os.urandom(16)
        try:
            wrapped = self.ring.wrap_key(secret, name)
        except KmsAccessError:
            assert self.model[name][-1] is not KeyState.ENABLED
            return name, 0, "", b""
        assert self.model[name][-1] is KeyState.ENABLED
        return name, len(self.model[name]), wrapped, secret

    @rule(blob=blobs, other=names)
    def unwrap(self, blob: tuple[str, int, str, bytes], other: str) -> None:
        name, version, wrapped, secret = blob
        if not version:
            return
        try:
            assert self.ring.unwrap_key(wrapped, name) == secret
            assert self.model[name][version - 1] is KeyState.ENABLED
        except KmsAccessError as error:
            assert self.model[name][version - 1].value == error.problem.value  # noqa: PT017
        if other != name:
            with pytest.raises(KmsAccessError):
                self.ring.unwrap_key(wrapped, other)

    @rule()
    def reopen(self) -> None:
        self.ring = Keyring(self.path, passphrase=self.passphrase)

    @invariant()
    def the_file_says_the_same(self) -> None:
        if hasattr(self, "ring"):
            listed = {key.name: [version.state for version in key.versions] for key in self.ring.list()}
            assert listed == self.model


TestKeyring = KeyringMachine.TestCase
TestKeyring.settings = settings(
    max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
