"""``bloomseal doctor``: is everything here that reading and writing takes? One screen."""

from __future__ import annotations

from collections.abc import Iterator

import click

from ...core.errors import BloomsealError, UsageError
from ...keytools.keyring.keyring import Keyring
from ...keytools.tools import KeyTools
from ...policy import Policy, TablePolicy
from ..arguments.keys import KeyOptions, key_options
from ..render import busy, print_json, table
from ..state import PATH, CommandState, common_options
from .checkup import Check, CheckOutcome, kms_checks, software_checks, table_checks

__all__ = ["doctor"]

_SAMPLE = 20


@click.command()
@click.argument("path", type=PATH, required=False, metavar="[TABLE]")
@click.option(
    "--policy", type=PATH, metavar="FILE", help="Policy file: its master keys are tried, the files held against it."
)
@click.option(
    "--table",
    "table_name",
    metavar="NAME",
    help="The policy's table (default: all, or the one that TABLE is named after).",
)
@click.option(
    "--sample", type=click.IntRange(1), default=_SAMPLE, show_default=True, help="Files of TABLE to look at, at most."
)
@key_options
@common_options()
def doctor(path: str | None, policy: str | None, table_name: str | None, sample: int, keys: KeyOptions) -> int:
    """Check versions and extras, Java and Spark, the policy, each of its master keys, and a sample of TABLE's files.

    A throwaway key is wrapped and unwrapped under each master key of the policy. Nothing is written, and no network is
    used unless a KMS or a TABLE is there.

    Exit code: 0 if nothing is wrong, notes included; 1 if something is, or could not be found out; 2 on a wrong call.

    \b
    Examples:
      bloomseal doctor
      bloomseal doctor --policy policy.toml
      bloomseal doctor lake/customers --policy policy.toml --table customers --keyring keys.json
    """
    if table_name is not None and policy is None:
        raise UsageError("--table names a table of --policy", hint="--policy FILE --table NAME")
    with busy("Looking"):
        checks = list(_checks(path, policy, table_name, sample, keys))
    good = all(check.state.good for check in checks)
    if CommandState.current().json:
        print_json({"ok": good, "checks": [check.to_dict() for check in checks]})
    else:
        table(["", "what", "found", "try"], [(c.state.value, c.name, c.found, c.hint) for c in checks])
        bad = sum(not check.state.good for check in checks)
        click.echo("nothing is wrong in what was looked at" if good else f"{bad} of {len(checks)} need a look")
    return 0 if good else 1


def _checks(
    path: str | None, policy_path: str | None, table_name: str | None, sample: int, keys: KeyOptions
) -> Iterator[Check]:
    yield from software_checks()
    policy: Policy | TablePolicy | None = None
    at_hand = None
    try:
        at_hand = keys.reading()
    except BloomsealError as error:
        yield Check.failed("keys", "keys given", error)
    tools = at_hand if isinstance(at_hand, KeyTools) else None
    if policy_path is not None:
        try:
            loaded = Policy.load(policy_path, kms=tools)
            policy = loaded if table_name is None else loaded.for_table(table_name)
            yield Check(
                "policy", policy_path, CheckOutcome.OK, f"valid; tables: {', '.join(sorted(loaded.tables)) or 'none'}"
            )
        except BloomsealError as error:
            yield Check.failed("policy", policy_path, error)
    if policy is not None:
        tried = list(kms_checks(policy, tools))
        yield from tried
        works = any(check.state is CheckOutcome.OK for check in tried)
        if tools is not None and not works:
            at_hand = None  # to ask again for every file takes long, and gives the same answer
        elif at_hand is None and works:
            # One KMS serves all tables of a policy.
            one = policy if isinstance(policy, TablePolicy) else next(iter(policy.tables.values()))
            at_hand = one.keys.with_pins(None)
    elif isinstance(at_hand, KeyTools):
        yield _without_policy(at_hand)
    if path is not None:
        yield from table_checks(path, policy, at_hand, sample=sample)


def _without_policy(tools: KeyTools) -> Check:
    kms = tools.kms
    found = "there; which master keys to try, a policy says"
    if isinstance(kms, Keyring):
        found = f"opens; master keys: {', '.join(key.name for key in kms.list()) or 'none'}"
    name = str(getattr(kms, "kms_name", type(kms).__name__))
    return Check(
        "keys",
        name,
        CheckOutcome.OK if isinstance(kms, Keyring) else CheckOutcome.NOTE,
        found,
        None if isinstance(kms, Keyring) else "--policy FILE",
    )
