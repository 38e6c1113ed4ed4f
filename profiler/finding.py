"""A finding: something wrong or worth knowing, with its evidence and what to do."""

from collections.abc import Iterable

from .records import Record

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


class Finding(Record, kw_only=True):
    """severity: error (it cannot work), warning (it works and will disappoint), note (good to know)."""

    id: str
    severity: str
    evidence: str
    """What was seen, with its numbers."""
    remedy: str = ""
    """What to do."""

    @property
    def sentence(self) -> str:
        """Evidence and remedy in one line."""
        return f"{self.evidence}: {self.remedy}" if self.remedy else self.evidence


def error(id: str, evidence: str, remedy: str = "") -> Finding:
    """It cannot work."""
    return Finding(id=id, severity=ERROR, evidence=evidence, remedy=remedy)


def warning(id: str, evidence: str, remedy: str = "") -> Finding:
    """It works and will disappoint."""
    return Finding(id=id, severity=WARNING, evidence=evidence, remedy=remedy)


def note(id: str, evidence: str, remedy: str = "") -> Finding:
    """Good to know."""
    return Finding(id=id, severity=NOTE, evidence=evidence, remedy=remedy)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; otherwise in the order given."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
