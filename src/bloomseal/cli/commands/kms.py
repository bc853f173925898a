"""``bloomseal kms``: is a key management system reachable, and does its client do what the key tools rely on?"""

from __future__ import annotations

import click

from ..render import print_json, table
from ..state import State, common_options

__all__ = ["kms"]


@click.group()
@common_options()
def kms() -> None:
    """Look at key management systems.

    \b
    Example:
      bloomseal kms check keyring:keys.json --master-key pii
    """


@kms.command()
@click.argument("uri")
@click.option("--master-key", "-k", required=True, help="A master key that may wrap and unwrap.")
@click.option("--other-master-key", help="A second one, for the checks that need two.")
@common_options()
def check(uri: str, master_key: str, other_master_key: str | None) -> None:
    """Run the conformance checks on the client of URI: wrapping, binding to the master key, refusals, answers.

    They wrap and unwrap throw-away keys and change nothing. Exit code 1 where a check fails.

    \b
    Example:
      bloomseal kms check keyring:keys.json --master-key pii
    """
    from ...keytools.kms.conformance import Outcome, check_client
    from ...keytools.kms.registry import client_for

    results = check_client(client_for(uri), master_key, other_master_key=other_master_key)
    if State.current().json:
        print_json([{"check": one.name, "outcome": str(one.outcome), "detail": one.detail} for one in results])
    else:
        table(["check", "outcome", "why"], [(one.name, str(one.outcome), one.detail) for one in results])
    if any(one.outcome is Outcome.FAILED for one in results):
        click.get_current_context().exit(1)
