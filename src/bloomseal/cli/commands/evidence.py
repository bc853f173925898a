"""``bloomseal evidence``: one signed bundle about keys, rotations and leaks, and whether a bundle is as it was
signed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from ...core.errors import UsageError
from ...core.text import counted
from ..arguments.auditing import LookOptions
from ..arguments.keys import KeyOptions
from ..arguments.options import option, options
from ..command import PATH, CommandGroup, CommandState
from ..render import answer, facts, listed, print_json, printable, progress, table

if TYPE_CHECKING:
    from ...keytools.signatures.keys import Signer

_MAKE: Final = "make"
_FORM: Final = 3
_PASSPHRASE: Final = "BLOOMSEAL_SIGNING_PASSPHRASE"  # noqa: S105 - the variable's name


class _Evidence(CommandGroup):
    """``evidence TABLE...`` makes a bundle: what is no other command's name is a table's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_MAKE, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Evidence)
def evidence() -> None:
    """Make the bundle that an auditor takes away: bloomseal evidence TABLE... --output evidence.zip

    It holds keys with their states and periods, columns and what they come under, rotations, destructions, what anybody
    can read, findings, and a CycloneDX bill, all under a signed manifest.

    \b
    Examples:
      bloomseal evidence lake/customers --output q3.zip --policy policy.toml --keyring keys.json --sign-key officer.pem
      bloomseal evidence sign q3.zip --sign-key second.pem
      bloomseal evidence verify q3.zip --public-key officer.pub.pem --public-key second.pub.pem
    """


@dataclass(frozen=True)
class _Signing:
    """The options by which somebody signs, as given."""

    sign_keys: tuple[str, ...] = option(
        "--sign-key",
        type=PATH,
        multiple=True,
        metavar="PEM",
        help=f"Private Ed25519 key that signs (${_PASSPHRASE} opens an encrypted one). Repeatable.",
    )
    sign_kms: tuple[str, ...] = option(
        "--sign",
        multiple=True,
        metavar="KMS#KEY",
        help="Key of a KMS that signs: aws-kms://REGION#alias/NAME, vault://HOST/transit#NAME, "
        "pkcs11:token=LABEL#NAME. Repeatable.",
    )

    def signers(self) -> list[Signer]:
        """Raises UsageError, KeyAccessError: a key that can't be had."""
        from ...evidence import FileSigner, KmsSigner

        passphrase = os.environ.get(_PASSPHRASE)
        if self.sign_keys and passphrase == "":
            raise UsageError(f"{_PASSPHRASE} is empty", hint="unset it")
        files = [FileSigner(path, passphrase=passphrase) for path in self.sign_keys]
        return [*files, *map(KmsSigner, self.sign_kms)]


@dataclass(frozen=True)
class _Beside:
    """As `bloomseal.evidence.collect.Beside`."""

    journals: tuple[str, ...] = option(
        "--journal",
        type=PATH,
        multiple=True,
        metavar="FILE",
        help="Journal of a rotation (default: those in the usual folder that name these files). Repeatable.",
    )
    destroyed: tuple[str, ...] = option(
        "--destroyed", multiple=True, metavar="KEY:VERSION", help="Make a certificate about this version. Repeatable."
    )
    samples: tuple[str, ...] = option(
        "--sample", type=PATH, multiple=True, metavar="PATH", help="Copies to try to open under it."
    )
    also: tuple[str, ...] = option(
        "--also", type=PATH, multiple=True, metavar="PATH", help="Copies and backups that must not need it."
    )
    access_log: str | None = option(
        "--access-log", type=PATH, metavar="FILE", help="Access log (JSON lines) to tell in short."
    )


_signing_options = options(_Signing, "signing")


@evidence.command(_MAKE, first=("--output", "--policy", "--keyring", "--sign-key", "--journal"))
@click.argument("paths", nargs=-1, type=PATH, required=True, metavar="TABLE...")
@click.option("--output", "out", type=PATH, required=True, metavar="ZIP", help="The bundle.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@_signing_options
@options(LookOptions, "look")
@options(_Beside, "beside")
@options(KeyOptions, "keys")
def make_bundle(
    paths: tuple[str, ...],
    out: str,
    overwrite: bool,
    signing: _Signing,
    look: LookOptions,
    beside: _Beside,
    keys: KeyOptions,
) -> int:
    """Look at each TABLE (files, folders, Delta and Iceberg tables) and write the bundle.

    Exit code: 0, also where the evidence is bad: the bundle tells it, and so does audit --fail-on. 2 on errors, and
    where there is nothing at a TABLE, or no data file at any.
    """
    from ...evidence import make

    arguments = look.arguments(keys, "--destroyed" if beside.destroyed else None)
    signers = signing.signers()
    with progress("Looking") as tell:
        found = make(
            list(paths),
            out,
            signers=signers,
            overwrite=overwrite,
            deep=look.deep,
            progress=tell,
            **arguments,
            **vars(beside) | {"journals": beside.journals or None},
        )
    told = found.told
    if CommandState.current().json:
        print_json({"bundle": out, "signatures": len(signers), **told})
        return 0
    _tell(told, out)
    if len(signers) < found.signatures_required:
        lacking = found.signatures_required - len(signers)
        click.echo(
            printable(f"  {counted(lacking, 'more signature')} needed: bloomseal evidence sign {out} --sign-key PEM")
        )
    return 0


@evidence.command("sign")
@click.argument("bundle", type=PATH, metavar="BUNDLE")
@_signing_options
@click.option("--signature", type=PATH, metavar="FILE", help="A signature over manifest.json that was made elsewhere.")
@click.option("--public-key", type=PATH, metavar="PEM", help="Its signer's public key.")
def sign(bundle: str, signing: _Signing, signature: str | None, public_key: str | None) -> int:
    """Add a signature to BUNDLE, whose members are compared with its manifest first.

    Whoever else has a key signs the bytes of manifest.json (unzip -p BUNDLE manifest.json), by Ed25519, or by ECDSA
    over P-256 with SHA-256 or P-384 with SHA-384; then give --signature and --public-key.
    """
    from ...evidence.bundle.manifest import add_signature
    from ...evidence.bundle.signing import Detached

    if (signature is None) != (public_key is None) or not (signing.sign_keys or signing.sign_kms or signature):
        raise UsageError("a signature comes by --sign-key, by --sign, or by --signature and --public-key")
    signers = signing.signers()
    if signature is not None and public_key is not None:
        signers.append(Detached(signature, public_key))
    signed = [fingerprint for signer in signers for fingerprint in add_signature(bundle, signer).signed_by]
    answer({"bundle": bundle, "signed_by": signed}, title="Signed")
    return 0


@evidence.command("public-key")
@click.argument("key", metavar="KMS#KEY")
def public_key_of(key: str) -> int:
    """Print the public key, in PEM, of a key that signs with --sign: for whoever is to verify."""
    from ...evidence import KmsSigner
    from ...keytools.signatures.keys import PublicKey

    pem = KmsSigner(key).public_key()
    if CommandState.current().json:
        print_json({"public_key": pem.decode(), "fingerprint": PublicKey(pem).fingerprint})
    else:
        click.echo(pem, nl=False)
    return 0


@evidence.command("verify")
@click.argument("bundle", type=PATH, metavar="BUNDLE")
@click.option(
    "--public-key",
    "public_keys",
    type=PATH,
    multiple=True,
    required=True,
    metavar="PEM",
    help="Public key (Ed25519, P-256, P-384) that must have signed. Repeatable.",
)
def verify(bundle: str, public_keys: tuple[str, ...]) -> int:
    """Tell whether BUNDLE is as its signers left it, by the bundle and the public keys alone, and what it says.

    Exit code: 0 if it is; 1 if it is not; 2 on errors.
    """
    from ...evidence.bundle.manifest import checked

    found, content = checked(bundle, list(public_keys), "evidence.json")
    told = _content(content or b"")
    if CommandState.current().json:
        print_json({**found.to_dict(), "evidence": told})
        return 0 if found.ok else 1
    facts(
        [
            ("bundle", bundle),
            ("as it was signed", found.ok),
            ("made", found.made if found.ok else None),
            ("with", found.tool if found.ok else None),
            ("signed by", ", ".join(found.signed_by) or None),
            ("not checked", ", ".join(found.unchecked) or None),
            ("members", len(found.members) or None),
        ],
        title="Bundle",
    )
    for problem in found.problems:
        click.echo(printable(f"  {problem}"))
    if told is not None and told["format_version"] == _FORM:
        _tell(told, None)
        _tell_columns(told)
    elif told is not None:
        click.echo("  its evidence.json and index.html hold an earlier version's verdicts, which are not repeated here")
    elif found.ok:
        click.echo("  the bundle holds no evidence that this version could read")
    return 0 if found.ok else 1


def _tell(told: dict[str, Any], out: str | None) -> None:
    looked = told["looked_at"]
    facts(
        [
            ("bundle", out),
            ("made", told["made"]),
            ("files", looked["files"]),
            ("keys", "at hand" if looked["with_keys"] else "none: what everybody sees"),
            ("findings", ", ".join(f"{n} {name}" for name, n in looked["findings"].items() if n) or "none"),
        ],
        title="Evidence",
    )
    if told["rules"]:
        table(
            ["severity", "rule", "findings", "such as"],
            [
                (
                    f["severity"],
                    f"{f['rule']} {f['name']}",
                    f["findings"],
                    f["such_as"]["file"] or f["such_as"]["message"],
                )
                for f in told["rules"]
            ],
        )
    listed("not seen:", looked["unseen"])
    table(
        ["key", "state", "current", "active since", "rotation due", "files", "owner"],
        [
            (f"{k['master_key']}:{k['version'] or '?'}", k["state"], k["current"], _day(k["activation"]), _day(k["rotation_due"]),
             k["files"], k["owner"] or "not named")
            for k in told["keys"]
        ],
    )  # fmt: skip
    if told["requirements"]:
        table(
            ["requirement", "columns", "files looked into", "findings", "of its keys", "not seen"],
            [
                (r["requirement"], ", ".join(r["columns"]), f"{r['looked_into']} of {r['files']}", _counted(r["findings"]),
                 "; ".join(r["key_findings"]) or "none", "; ".join(r["unseen"]))
                for r in told["requirements"]
            ],
        )  # fmt: skip
    _tell_rotations(told)


def _tell_rotations(told: dict[str, Any]) -> None:
    for one in told["rotations"]:
        moved = "; ".join(f"{p['before']} to {p['after']} in {counted(p['files'], 'file')}" for p in one["keys"])
        click.echo(
            printable(
                f"  {one['journal']} ({moved or 'no key changed'}): no file was missed: {one['complete']['text']}"
            )
        )
    for one in told["destructions"]:
        name = f"{one['master_key']}:{one['version']}"
        click.echo(printable(f"  {name}: the KMS has destroyed it: {one['destroyed']['text']}"))
        click.echo(printable(f"  {name}: no file needs it: {one['unneeded']['text']}"))


def _tell_columns(told: dict[str, Any]) -> None:
    for column in told["columns"]:
        if not (column["requirements"] or column["keys"] or column["findings"]) and set(column["files"]) == {
            "plaintext"
        }:
            continue
        under = f" ({', '.join(column['requirements'])})" if column["requirements"] else ""
        click.echo(printable(f"{column['table'] or '(no table)'}: {column['column']}{under}"))
        click.echo(
            printable(
                f"  files: {_counted(column['files'])}; keys: {', '.join(column['keys']) or 'none'}; findings: {_counted(column['findings'])}"
            )
        )


def _counted(of: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in of.items()) or "none"


def _content(data: bytes) -> dict[str, Any] | None:
    """What a bundle says; None where it is of another program."""
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    known = isinstance(told, dict) and told.get("format") == "bloomseal evidence"
    return told if known and told.get("format_version") in range(1, _FORM + 1) else None


def _day(moment: str | None) -> str:
    return moment[:10] if moment else ""
