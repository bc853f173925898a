"""``bloomseal keyring``: master keys in a local file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from ...core.errors import UsageError
from ...keytools.keyring.keyfile import MasterKey
from ...keytools.keyring.keyring import Keyring
from ...keytools.recipients.hpke import KeyKind
from ...keytools.recipients.recipient import Recipient
from ...keytools.signatures.keys import PublicKey
from ...keytools.signatures.signers import as_signer
from ..arguments.keys import KeyringOptions, read_passphrase
from ..arguments.options import option, options
from ..command import PATH, CommandGroup, CommandState
from ..render import print_json, remark, table

_BITS: Final = click.option(
    "--bits", type=click.Choice(["128", "192", "256"]), help="Length of the key (default: 256)."
)
_KIND: Final = click.option(
    "--kind",
    type=click.Choice([kind.value for kind in KeyKind]),
    default=KeyKind.AES.value,
    help="hpke or x25519: a pair, for writers who can't read; ed25519: a pair that signs (default: aes).",
)
_VERSION: Final = click.option("--version", "number", type=int, metavar="N", help="This version only (default: all).")


@dataclass
class _Grounds:
    """Why a key may be erased."""

    evidence: str | None = option(
        "--evidence",
        type=PATH,
        metavar="FILE",
        help="The yes of bloomseal audit --may-destroy NAME:N --format json, of this keyring, key and version.",
    )
    evidence_age: float = option(
        "--evidence-age",
        type=click.FloatRange(0, min_open=True),
        default=24.0,
        show_default=True,
        metavar="HOURS",
        help="How old the evidence may be.",
    )
    without_evidence: bool = option(
        "--without-evidence", is_flag=True, help="Erase it though files may need it, as to shred them."
    )


_keyring_options = options(KeyringOptions, "file")


@click.group(cls=CommandGroup)
def keyring() -> None:
    """Make and look after the master keys in a local keyring file. Key bytes are never shown.

    \b
    Examples:
      bloomseal keyring create --keyring keys.json footer pii
      bloomseal keyring rotate --keyring keys.json pii
      bloomseal keyring list --keyring keys.json
    """


@keyring.command(short_help="Make a keyring file, with keys if any are named.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_BITS
@_KIND
@click.option("--passphrase", is_flag=True, help="Ask for a passphrase that protects the keys in the file.")
@_keyring_options
def create(names: tuple[str, ...], bits: str | None, kind: str, passphrase: bool, file: KeyringOptions) -> None:
    """Make a keyring file of mode 0600, with a master key for each NAME.

    A passphrase, from --passphrase-file, the environment or a prompt, seals the keys in the file.
    """
    if Path(file.path).exists():
        raise UsageError("the keyring exists already", file=file.path, hint="bloomseal keyring add")
    secret = read_passphrase(file.passphrase_file)
    if secret is None and passphrase:
        secret = click.prompt("Passphrase for the keyring", hide_input=True, confirmation_prompt=True, err=True)
    made = Keyring(file.path, passphrase=secret, create=True)
    for name in names:
        made.create(name, bits=int(bits or 256), kind=kind)
    _tell_protection(made)
    _show(made.list())


@keyring.command(short_help="Add master keys.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_BITS
@_KIND
@click.option("--exist-ok", is_flag=True, help="Leave keys that are there already as they are.")
@_keyring_options
def add(names: tuple[str, ...], bits: str | None, kind: str, exist_ok: bool, file: KeyringOptions) -> None:
    """Add a master key for each NAME."""
    ring = file.open()
    _show([ring.create(name, bits=int(bits or 256), exist_ok=exist_ok, kind=kind) for name in names])
    _tell_protection(ring)


@keyring.command(short_help="Add a version to master keys; it wraps from now on.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_BITS
@_keyring_options
def rotate(names: tuple[str, ...], bits: str | None, file: KeyringOptions) -> None:
    """Add a version to each master key. Earlier versions go on opening what they have wrapped."""
    ring = file.open()
    _show([ring.rotate(name, bits=int(bits) if bits else None) for name in names])
    _tell_protection(ring)


@keyring.command(short_help="Print the line that names a key of kind hpke to its writers.")
@click.argument("name")
@_keyring_options
def recipient(name: str, file: KeyringOptions) -> None:
    """Print the public half of a master key's current version: one line, for `recipients` in a policy. Who has it can
    write what the master key opens, and open nothing.

    \b
    Examples:
      bloomseal keyring create --kind hpke --keyring reader.json pii
      bloomseal keyring recipient --keyring reader.json pii
    """
    line = file.open().recipient(name)
    if CommandState.current().json:
        found = Recipient.parse(line)
        told = {"key": name, "recipient": line, "id": found.id, "algorithm": found.kind.algorithm}
        print_json({**told, "post_quantum": found.kind.post_quantum})
    else:
        click.echo(line)


@keyring.command(short_help="Print the line that names a signer to the readers of a table.")
@click.argument("name", metavar="NAME|PEM|KMS#KEY")
@_keyring_options
def signer(name: str, file: KeyringOptions) -> None:
    """Print the public half of what signs: one line, for `signers` in a policy. Of a key of kind ed25519, of a private
    key's PEM file, or of a key in a KMS that signs.

    \b
    Examples:
      bloomseal keyring create --kind ed25519 --keyring collector.json collector
      bloomseal keyring signer --keyring collector.json collector
      bloomseal keyring signer vault://vault.example.com:8200/transit#collector
    """
    key = PublicKey(as_signer(name, lambda: file.open()).public_key())
    if CommandState.current().json:
        told = {"signer": key.line, "algorithm": key.algorithm, "fingerprint": key.fingerprint}
        print_json({"key": name, **told, "post_quantum": False})
    else:
        click.echo(key.line)


@keyring.command(short_help="Give the keyring another passphrase, or take it away.")
@click.option("--new-passphrase-file", metavar="PATH", help="File with the new passphrase (default: a prompt).")
@click.option("--remove", is_flag=True, help="Leave the keys in clear: only the file's mode guards them then.")
@_keyring_options
def passphrase(new_passphrase_file: str | None, remove: bool, file: KeyringOptions) -> None:
    """Seal the keys in the file anew, under another passphrase. The only way to add or to remove protection.

    The present passphrase, if there is one, comes from --passphrase-file, the environment or a prompt. Programs that
    have the keyring open refuse it until they are started again with the new one. Copies of the old file open as
    before.
    """
    if remove and new_passphrase_file:
        raise UsageError("--remove and --new-passphrase-file exclude one another")
    ring = file.open()
    new = read_passphrase(new_passphrase_file)
    if new is None and not remove:
        new = click.prompt("New passphrase for the keyring", hide_input=True, confirmation_prompt=True, err=True)
    ring.change_passphrase(new)
    _tell_protection(ring)
    _show(ring.list())


@keyring.command(short_help="Refuse the use of a master key until it is enabled again.")
@click.argument("name")
@_VERSION
@_keyring_options
def disable(name: str, number: int | None, file: KeyringOptions) -> None:
    """Refuse the use of a master key, or of one version, until it is enabled again."""
    _show([file.open().disable(name, number)])


@keyring.command(short_help="Allow the use of a disabled master key.")
@click.argument("name")
@_VERSION
@_keyring_options
def enable(name: str, number: int | None, file: KeyringOptions) -> None:
    """Undo disable. What is destroyed stays destroyed."""
    _show([file.open().enable(name, number)])


@keyring.command(short_help="Erase a master key for good: what it wrapped is lost.")
@click.argument("name")
@_VERSION
@options(_Grounds, "grounds")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_keyring_options
def destroy(name: str, number: int | None, grounds: _Grounds, yes: bool, file: KeyringOptions) -> None:
    """Erase a master key's bytes, or one version's: everything that it wrapped can never be opened again.

    It wants the evidence that no file needs it, or to be told to do without. Copies of the keyring file in backups and
    snapshots are out of reach.

    \b
    Examples:
      bloomseal audit lake --may-destroy pii:1 --keyring keys.json --format json > evidence.json
      bloomseal keyring destroy --keyring keys.json pii --version 1 --evidence evidence.json
    """
    if (grounds.evidence is None) == (not grounds.without_evidence):
        raise UsageError(
            "destroying a key wants the evidence that no file needs it",
            hint=f"bloomseal audit TABLE... --may-destroy '{name}:{number or '*'}' --format json > FILE, then "
            "--evidence FILE; or --without-evidence",
        )
    ring = file.open()
    versions = ring.describe(name).versions or ()
    if not (doomed := [one for one in versions if number in (None, int(one.version))]):
        raise UsageError(
            f"{name!r} has no version {number}", hint=f"one of {', '.join(one.version for one in versions)}"
        )
    if grounds.evidence is not None:
        from ...audit.destruction.evidence import check_evidence

        told = check_evidence(grounds.evidence, ring, name, number, max_age=timedelta(hours=grounds.evidence_age))
        remark(f"bloomseal: by the evidence no file of {told['files']} needs it; copies elsewhere were not looked at")
    which = f"version{'' if len(doomed) == 1 else 's'} {', '.join(one.version for one in doomed)}"
    if not yes:
        click.confirm(f"Erase {name!r}, {which}? What it wrapped is lost for good", abort=True, err=True)
    after = ring.destroy(name, number)
    remark(f"bloomseal: {name}, {which}: erased from {ring.path}")
    _show([after])


@keyring.command(short_help="Copy master keys into a keyring of their own, to hand over.")
@click.option("--only", "names", multiple=True, required=True, metavar="NAME", help="Master key to copy. Repeatable.")
@click.option("--output", type=PATH, required=True, metavar="PATH", help="The new keyring; nothing may be there yet.")
@click.option("--new-passphrase-file", metavar="PATH", help="File with the copy's passphrase (default: a prompt).")
@click.option("--recipient", metavar="LINE|FILE", help="Seal the copy to a recipient's line, in place of a passphrase.")
@click.option("--no-passphrase", is_flag=True, help="Leave the copy's keys in clear: only its mode guards them then.")
@_keyring_options
def export(
    names: tuple[str, ...],
    output: str,
    new_passphrase_file: str | None,
    recipient: str | None,
    no_passphrase: bool,
    file: KeyringOptions,
) -> None:
    """Copy the enabled versions of master keys, and no others, into a new keyring under a passphrase of its own: for
    somebody who may open, and write, whatever comes under these keys.

    \b
    Example:
      bloomseal keyring export --only pii --output partner.json --keyring keys.json
    """
    if sum(map(bool, (no_passphrase, new_passphrase_file, recipient))) > 1:
        raise UsageError("--no-passphrase, --new-passphrase-file and --recipient exclude one another")
    ring = file.open()
    secret = read_passphrase(new_passphrase_file)
    if recipient is not None and not recipient.startswith("bsr1"):
        try:
            recipient = Path(recipient).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UsageError("neither a recipient's line nor a file with one", file=recipient) from None
    if secret is None and not no_passphrase and recipient is None:
        if not sys.stdin.isatty():
            raise UsageError(
                "the copy needs a passphrase of its own", hint="--new-passphrase-file PATH, or --no-passphrase"
            )
        secret = click.prompt("Passphrase for the copy", hide_input=True, confirmation_prompt=True, err=True)
    copies = ring.export(names, output, passphrase=secret, recipient=recipient)
    for key in copies:
        alive = [str(one.version) for one in key.versions if one.key is not None]
        remark(f"{key.name}: version{'' if len(alive) == 1 else 's'} {', '.join(alive)} copied to {output}")
    _show(copies)


@keyring.command("import", short_help="Add the master keys of a copy that was sealed to a key in this keyring.")
@click.argument("copy", type=PATH)
@_keyring_options
def import_copy(copy: str, file: KeyringOptions) -> None:
    """Add the master keys of a file that `keyring export --recipient` has sealed to a key in this keyring.

    \b
    Example:
      bloomseal keyring import pii.sealed --keyring mine.json
    """
    _show(file.open().add_copy(copy))


@keyring.command("list", short_help="List master keys and their versions.")
@_keyring_options
def list_keys(file: KeyringOptions) -> None:
    """List master keys, their versions and states; never their bytes."""
    _show(file.open().list())


def _tell_protection(ring: Keyring) -> None:
    if not ring.protected:
        remark(f"{ring.path} has no passphrase: only its mode (0600) keeps its keys from others")


def _show(keys: Iterable[MasterKey]) -> None:
    rows = [
        (
            *(key.name, version.version, str(version.state), version.bits, version.created, version is key.current),
            str(version.kind),
        )
        for key in keys
        for version in key.versions
    ]
    names = ["key", "version", "state", "bits", "created", "wraps", "kind"]
    if CommandState.current().json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        table(names, [(*row[:4], f"{row[4]:%Y-%m-%d %H:%M}", *row[5:]) for row in rows])
