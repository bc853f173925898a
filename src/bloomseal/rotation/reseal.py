"""A rekey that makes files in any state what their table's policy says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..core.decryption import DecryptionSpec
from ..core.parquet.footer import peek
from ..core.parquet.walk import Walk
from ..core.storage.source import Source
from ..format.opening import open_footer
from ..policy import TablePolicy
from ..specs import EncryptionSpec, encryption_for
from .jobs import Rekey
from .settings import master_key_of


@dataclass
class Reseal(Rekey):
    """As `Rekey`, of files that the policy would refuse: in plaintext, under other master keys or another AAD prefix,
    with pages that nothing authenticates. Whoever could replace a file has chosen what is sealed then.

    A column that is sealed now, and that the policy has in plaintext, stays under its master key.

    Args:
        decryption, encryption: the table's policy, whose filters are built too.
    """

    from_any: bool = field(default=True, init=False, repr=False)  # another job than a rekey by the policy

    def _open(self, source: Source) -> tuple[Walk, DecryptionSpec]:
        policy = self._policy
        seen = peek(source)
        supplied = seen.algorithm is not None and not seen.inner()[1].binary(1) and bool(seen.inner()[1].boolean(3))
        prefixes = policy.prefixes(source.ref) if supplied else (None,)
        decryption = DecryptionSpec(
            policy.keys.with_pins(None),
            aad_prefix=prefixes[0],
            previous_aad_prefixes=[one for one in prefixes[1:] if one],
            allow_plaintext=True,
            allow_ctr=True,
            access_log=policy.access_log,
        )
        return Walk(source, *open_footer(source, decryption)), decryption

    def sealing(self, walk: Walk, decryption: DecryptionSpec) -> EncryptionSpec:  # noqa: ARG002
        policy = self._policy
        spec = encryption_for(policy, walk.source.ref)
        own: dict[str, Any] = dict(spec.column_keys or {})
        crypto = walk.footer.crypto
        for chunk in walk.chunks(0) if walk.footer.row_groups else ():
            if crypto is not None and chunk.encrypted and policy.master_key(chunk.leaf.name) is None:
                metadata = chunk.key_metadata or crypto.footer_key_metadata
                own[chunk.leaf.name] = master_key_of(walk, policy.keys, metadata)
        return replace(spec, column_keys=own or None, keys=policy.keys.with_pins(None))

    def _filters(self, walk: Walk) -> Any:
        schema = walk.footer.schema
        return {name: spec for name, spec in self._policy.bloom_filters().items() if schema.has(name)}

    @property
    def _policy(self) -> TablePolicy:
        assert isinstance(self.encryption, TablePolicy)  # noqa: S101
        return self.encryption
