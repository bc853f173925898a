"""What a policy says about a master key as such: who answers for it, and how long it is to be used.

The periods are those of NIST SP 800-57 Part 1 (Revision 5), section 5.3: within the originator usage period a key
protects new data, within the recipient usage period what it protects may still be opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from ..core.errors import KeyAccessError, PolicyError


@dataclass(frozen=True)
class KeyPolicy:
    """One master key.

    Attributes:
        owner: who answers for the data under it.
        custodian: who looks after the key.
        users: who may use it, in words; the KMS's own rights are not asked.
        activation: the day from which it may protect data (UTC); None: from the day on which the KMS made it.
        originator_usage: how long one version may protect new data, counted from its activation; then it is to be
            rotated.
        recipient_usage: how long what a version has protected may be opened, counted from its activation.
        expiry: the day after which no version is to be used at all.
        compromised: versions that somebody has got hold of.
        dual_control: two persons have to sign for the destruction of a version.
        recipients: lines of ``bloomseal keyring recipient``: new keys are wrapped to them, and by no KMS.

    Raises:
        PolicyError: periods that contradict one another; recipients that are none, or of several kinds.
    """

    owner: str | None = None
    custodian: str | None = None
    users: tuple[str, ...] = ()
    activation: date | None = None
    originator_usage: timedelta | None = None
    recipient_usage: timedelta | None = None
    expiry: date | None = None
    compromised: tuple[str, ...] = ()
    dual_control: bool = False
    recipients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.originator_usage and self.recipient_usage and self.recipient_usage < self.originator_usage:
            # A key that protects what nobody may open any more.
            raise PolicyError("recipient_usage is shorter than originator_usage")
        if self.activation and self.expiry and self.expiry < self.activation:
            raise PolicyError("expiry lies before activation")
        if self.recipients:
            from ..keytools.recipients.recipient import recipients_of

            try:
                recipients_of(self.recipients)
            except KeyAccessError as error:
                raise PolicyError(error.what, hint=error.hint) from None

    def moment(self, day: date | None) -> datetime | None:
        """The beginning of a day, UTC."""
        return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
