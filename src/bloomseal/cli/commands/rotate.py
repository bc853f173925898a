"""``bloomseal rewrap``, ``rekey``, ``repair``, ``seal`` and ``unseal``: many files, planned, journalled, reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import click

from ...core.decryption import DecryptionSpec
from ...core.errors import PolicyError, UsageError
from ...core.text import counted
from ...keytools.tools import KeyTools
from ...policy import TablePolicy
from ...rotation import Rekey, Repair, Reseal, Rewrap, Seal, Unseal, plan, rotate
from ...rotation.job import Job
from ...rotation.outcome import RotationReport, Status
from ...rotation.sign import Sign
from ...sbbf import FilterSpec
from ...specs import EncryptionSpec
from ..arguments.keys import KeyOptions
from ..arguments.opening import WITHOUT_POLICY, OpeningOptions, PolicyOptions
from ..arguments.options import argument, option, options
from ..arguments.sealing import ResealingOptions, SealingOptions, filter_option
from ..command import PATH, Command, CommandState
from ..render import answer, print_json, progress, remark, show


@dataclass
class RunOptions:
    """What all five commands have in common."""

    SECTION: ClassVar = "Run"
    paths: tuple[str, ...] = argument(nargs=-1, type=PATH, required=True, metavar="PATH...")
    follow_links: bool = option("--follow-links", is_flag=True, help="Follow links that lead out of PATH, too.")
    journal: str | None = option(
        "--journal", type=PATH, metavar="PATH", help="Where to keep the journal (default: in the user's state folder)."
    )
    restart: bool = option("--restart", is_flag=True, help="Begin a new run, whatever an earlier one has done.")
    jobs: int = option(
        "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N", help="Files at the same time."
    )
    patience: float = option(
        "--patience",
        type=click.FloatRange(0),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a KMS that throttles, before files fail.",
    )
    dry_run: bool = option("--dry-run", is_flag=True, help="Tell what would be done and what it costs; write nothing.")

    def carry_out(self, job: Job) -> int:
        """Plan or run, and tell. Returns the exit code: 1 where something could not be done."""
        places: dict[str, Any] = {"follow_links": self.follow_links, "journal": self.journal}
        if self.dry_run:
            with progress("Planning") as tell:
                planned = plan(self.paths, job, progress=tell, **places)
            _tell_of_nothing(len(planned.files))
            answer(planned.to_dict(), title=f"{planned.operation}: nothing was written")
            if isinstance(job, Rewrap):
                _tell_of_none(job.master_keys, all(file.action == "none" and not file.left for file in planned.files))
            elif isinstance(job, Rekey) and all(file.action == job.operation for file in planned.files):
                seen = {call[1] for file in planned.files for call in file.calls if isinstance(call, tuple)}
                _tell_of_none(job.master_keys, seen.isdisjoint(job.master_keys or ()))
            return 0 if planned.ok else 1
        with progress(job.operation) as tell:
            report = rotate(
                self.paths,
                job,
                restart=self.restart,
                jobs=self.jobs,
                patience=self.patience,
                progress=tell,
                **places,
            )
        _tell_of_nothing(len(report.files))
        if CommandState.current().json:
            print_json(report.to_dict())
        else:
            show(_for_people(report), title=f"{report.operation}: {counted(len(report.files), 'file')}")
        if isinstance(job, Rewrap):
            _tell_of_none(job.master_keys, all(file.status is Status.NOTHING for file in report.files))
        elif isinstance(job, Rekey) and all(file.status is Status.REKEYED for file in report.files):
            seen = {key["master_key"] for file in report.files for key in file.keys}
            _tell_of_none(job.master_keys, seen.isdisjoint(job.master_keys or ()))
        return 0 if report.ok else 1


def _tell_of_nothing(files: int) -> None:
    """A folder that was misspelt, and exists, is done at once."""
    if not files:
        remark("no data file was found there")


def _for_people(report: RotationReport) -> dict[str, Any]:
    """What a run did, of its files only those about which there is something to know."""
    problems: list[dict[str, Any]] = []
    for one in report.problems:
        problems.append({"path": one.path, "status": str(one.status), "why": one.why})
        problems += [{"path": one.path, "status": f"column {key['column']}", "why": key["why"]} for key in one.left]
        why = "the file does not refer to it; left as it is"
        problems += [{"path": one.path, "status": f"key material {name}", "why": why} for name in one.unreferenced]
    told = {name: value for name, value in report.to_dict().items() if name not in ("counts", "kms")}
    told |= {
        "filters_replaced": sum(one.filters_replaced for one in report.files),
        "files": problems,
        "unchecked": _by_column(report, "unchecked", "nothing_tells_whether_its_filter_is_right"),
        "dropped": _by_column(report, "dropped", "its_filter_in_clear_was_not_taken_over"),
        "old_copies": Counter(one.old_copies for one in report.files if one.old_copies),
        "signed_by": Counter(one.signed_by for one in report.files if one.signed_by),
    }
    return {**report.counts, **told}


def _by_column(report: RotationReport, name: str, why: str) -> list[dict[str, Any]]:
    found = Counter((one.path, each["column"], each["why"]) for one in report.files for each in getattr(one, name))
    return [{"path": at[0], "column": at[1], why: at[2], "row_groups": number} for at, number in found.items()]


def _tell_of_none(leave: Mapping[str, str] | None, none: bool) -> None:
    """Say so where no file has a key under a key to leave: its name may be misspelt, and the run still ends well."""
    if none and leave:
        remark(f"no key in these files is under {' or '.join(leave)}")


@dataclass
class LeaveOptions:
    """Master keys to leave, and those in their place."""

    from_keys: tuple[str, ...] = option(
        "--from", multiple=True, metavar="NAME", help="Master key to leave. Repeatable."
    )
    to_keys: tuple[str, ...] = option(
        "--to", multiple=True, metavar="NAME", help="Master key in its place, one per --from."
    )

    @property
    def master_keys(self) -> dict[str, str] | None:
        """Old → new; None where none is left."""
        if len(self.from_keys) != len(self.to_keys):
            raise UsageError("--from and --to come in pairs", hint="--from pii --to pii-2027")
        return dict(zip(self.from_keys, self.to_keys, strict=True)) or None


@dataclass
class FileOptions:
    """What new files hold beside their pages."""

    material: Literal["internal", "external"] | None = option(
        "--material",
        type=click.Choice(["internal", "external"]),
        help="Key material in the file, or beside it (default: as it is; new: internal).",
    )
    rebuild_filters: bool = option(
        "--rebuild-filters",
        is_flag=True,
        help="Build filters anew that deny values of their own column (else refused).",
    )

    def placed(self, spec: EncryptionSpec) -> EncryptionSpec:
        """The specification with its key material where `--material` wants it."""
        if self.material is None:
            return spec
        if not isinstance(spec.keys, KeyTools):
            raise UsageError("explicit keys have no key material", hint="leave out --material")
        spec.keys.internal = self.material == "internal"
        return spec


@dataclass
class NewKeyOptions:
    """Where new keys come from, if not from where the old ones are."""

    new_keyring: str | None = option(
        "--new-keyring", type=PATH, metavar="PATH", help="Keyring of the new keys, if it is another one."
    )
    new_kms: str | None = option("--new-kms", metavar="URI", help="KMS of the new keys, if it is another one.")

    def keys(self, old: KeyOptions) -> KeyOptions:
        """The options that new keys are made by."""
        if self.new_keyring is None and self.new_kms is None:
            return old
        if self.new_keyring and self.new_kms:
            raise UsageError("--new-keyring and --new-kms exclude one another")
        return KeyOptions(self.new_keyring, old.passphrase_file, self.new_kms)


_run_options = options(RunOptions, "run")
_leave_options = options(LeaveOptions, "leave")
_file_options = options(FileOptions, "files")


@click.command(
    cls=Command,
    first=("--policy", "--keyring", "--from", "--to", "--dry-run"),
)
@_leave_options
@click.option("--check-keys", is_flag=True, help="Unwrap every new wrapping and compare, also where the KMS re-wraps.")
@_run_options
@options(OpeningOptions, "opening")
def rewrap(run: RunOptions, opening: OpeningOptions, leave: LeaveOptions, check_keys: bool) -> int:
    """Wrap the data keys of the files at PATH (files, folders or URIs) under other master keys, or under the current
    versions of the same ones. The data keys stay, and no page is touched: whoever already has a data key keeps what it
    opens.

    \b
    Examples:
      bloomseal rewrap tables/customers --keyring keys.json --dry-run
      bloomseal rewrap tables/customers --keyring keys.json --from pii --to pii-2027
    """
    return run.carry_out(Rewrap(_decryption(opening, run.paths), leave.master_keys, check_keys))


@click.command(
    cls=Command,
    first=("--policy", "--keyring", "--from", "--to", "--dry-run"),
)
@_leave_options
@click.option(
    "--from-any",
    is_flag=True,
    help="Take files in any state, in plaintext or under other keys or prefixes than the policy's, which says what they become.",
)
@options(ResealingOptions, "sealing")
@filter_option
@_file_options
@options(NewKeyOptions, "new")
@_run_options
@options(OpeningOptions, "opening")
def rekey(
    run: RunOptions,
    opening: OpeningOptions,
    leave: LeaveOptions,
    sealing: SealingOptions,
    filters: dict[str, FilterSpec],
    files: FileOptions,
    new: NewKeyOptions,
    from_any: bool,
) -> int:
    """Open every encrypted module of the files at PATH and seal it again under fresh data keys, with new nonces and a
    new file identity. No page is decoded. The old data keys open nothing of the new files.

    Without --footer-key, each file is sealed as it is now, under the same master keys (or those of --policy), with what
    --from, --algorithm, --key-bits, --new-aad-prefix, --encrypted-footer and --material change.

    With --policy and --from-any, files become what the policy says whatever they are, its filters with them. Who wrote
    them is then for you to know: a file that somebody put there is sealed like any other.

    The encrypted columns of ORC files get new local keys, under the newest versions of their master keys, of those of
    --to, or of the policy's. Nothing else of these files can be changed.

    \b
    Examples:
      bloomseal rekey tables/customers --keyring keys.json
      bloomseal rekey tables/customers --keyring keys.json --key-bits 256 --from pii --to pii-2027
      bloomseal rekey events.orc/ --keyring keys.json --allow-ctr
      bloomseal rekey tables/customers --policy policy.toml --table customers --from-any
      bloomseal rekey old.parquet --key-file footer=old.key --new-keyring keys.json --footer-key footer
    """
    decryption = _decryption(opening, run.paths)
    changes = sealing.changes()
    rebuild = files.rebuild_filters
    if sealing.footer_key is None:
        if sealing.column_key or sealing.complete or new.new_keyring or new.new_kms:
            raise UsageError("--column-key, --complete, --new-keyring and --new-kms need --footer-key")
        policy = opening.policy.load(opening.keys, run.paths)
        built = _specs(policy, filters)
        if from_any:
            if policy is None or changes or leave.master_keys or files.material or filters:
                raise UsageError(
                    "--from-any takes all that files become from --policy", hint="--policy FILE --table NAME"
                )
            return run.carry_out(Reseal(decryption, policy, rebuild_filters=rebuild))
        if policy is not None and not (changes or leave.master_keys or files.material):
            return run.carry_out(Rekey(decryption, policy, bloom_filters=built, rebuild_filters=rebuild))
        external = None if files.material is None else files.material == "external"
        return run.carry_out(Rekey(decryption, None, leave.master_keys, changes, external, built, rebuild))
    if opening.policy.policy_file or leave.from_keys or leave.to_keys or from_any:
        what = "--footer-key says what to seal with; a policy, --from, --from-any and --to go without it"
        raise UsageError(what, hint=WITHOUT_POLICY)
    placed = files.placed(sealing.spec(new.keys(opening.keys)))
    return run.carry_out(Rekey(decryption, placed, bloom_filters=filters or None, rebuild_filters=rebuild))


@click.command(
    cls=Command,
    first=("--policy", "--keyring", "--allow-ctr", "--drop-masked", "--dry-run"),
)
@click.option("--drop-masked", is_flag=True, help="Leave out the filters over masked values, too.")
@_run_options
@options(OpeningOptions, "opening")
def repair(run: RunOptions, opening: OpeningOptions, drop_masked: bool) -> int:
    """Build the filters of encrypted columns anew in the ORC files at PATH, where they lie in clear, and seal them
    under new local keys. Filters over masked values stay for readers without a key. A dry run builds the filters, too.

    Copies of the old files still tell true values to whoever has them: destroy them.

    \b
    Example:
      bloomseal repair events.orc/ --keyring keys.json --allow-ctr --dry-run
    """
    return run.carry_out(Repair(_decryption(opening, run.paths), drop_masked))


@click.command(
    cls=Command,
    first=("--policy", "--keyring", "--footer-key", "--column-key", "--dry-run"),
)
@options(SealingOptions, "sealing")
@filter_option
@_file_options
@click.option("--output", type=PATH, metavar="FOLDER", help="Folder for the new files (default: in place).")
@_run_options
@options(KeyOptions, "keys")
@options(PolicyOptions, "policy")
def seal(
    run: RunOptions,
    keys: KeyOptions,
    policy: PolicyOptions,
    sealing: SealingOptions,
    filters: dict[str, FilterSpec],
    files: FileOptions,
    output: str | None,
) -> int:
    """Encrypt the plaintext Parquet files at PATH, whoever wrote them, without decoding a page. Encrypted files are
    left as they are. The blocks of a file that was replaced stay on the disk until they are used again.

    \b
    Examples:
      bloomseal seal tables/customers --keyring keys.json --footer-key footer --column-key ssn=pii --bloom-filter ssn
      bloomseal seal tables/customers --policy policy.toml --table customers
    """
    if (table_policy := policy.load(keys, run.paths)) is not None:
        if sealing.said or files.material:
            what = "the policy says how files are sealed; options that say it too go without"
            raise UsageError(what, hint=WITHOUT_POLICY)
        return run.carry_out(Seal(table_policy, _specs(table_policy, filters), output, files.rebuild_filters))
    placed = files.placed(sealing.spec(keys))
    return run.carry_out(Seal(placed, filters or None, output, files.rebuild_filters))


@click.command(cls=Command, first=("--output", "--in-place", "--policy", "--keyring", "--dry-run"))
@click.option("--output", type=PATH, metavar="FOLDER", help="Folder for the plaintext files.")
@click.option("--in-place", is_flag=True, help="Replace the files themselves.")
@_run_options
@options(OpeningOptions, "opening")
def unseal(run: RunOptions, opening: OpeningOptions, output: str | None, in_place: bool) -> int:
    """Decrypt the files at PATH, their filters with them: everything in the new files is in clear.

    \b
    Example:
      bloomseal unseal tables/customers --keyring keys.json --output plain/
    """
    return run.carry_out(Unseal(_decryption(opening, run.paths), output, in_place))


@click.command(cls=Command, first=("--policy", "--signer", "--table", "--keyring", "--dry-run"))
@_run_options
@options(OpeningOptions, "opening")
def sign(run: RunOptions, opening: OpeningOptions) -> int:
    """Sign the files at PATH that none of the table's signers has signed, with the key that --signer names.

    Each file is opened and verified first, whoever has put it there: who signs answers for what is in it.

    \b
    Example:
      bloomseal sign tables/customers --policy policy.toml --signer keyring:officer.json#officer
    """
    return run.carry_out(Sign(_decryption(opening, run.paths)))


def _decryption(opening: OpeningOptions, paths: Sequence[str]) -> DecryptionSpec | TablePolicy:
    if opening.policy.policy_file is not None and opening.encrypted_column:
        raise UsageError(
            "--encrypted-column does not go with --policy, which says it", hint="a key for the column there"
        )
    decryption = opening.decryption(paths)
    if decryption is None or decryption.keys is None:
        raise PolicyError(
            "no keys were named, so nothing could be opened", hint="--keyring PATH, --kms URI, --policy, or --key-file"
        )
    return decryption


def _specs(policy: TablePolicy | None, filters: dict[str, FilterSpec]) -> dict[str, FilterSpec] | None:
    """None where nothing was said, and the policy's alone are meant."""
    return None if not filters else filters if policy is None else policy.bloom_filters() | filters
