"""What reports say of each kind of finding: one module per kind, and a table of them.

A kind that stands in `capelet.findings.kinds.KINDS` and not here is reported from its record alone.
"""

from __future__ import annotations

from capelet.findings import Findings
from capelet.findings.kinds import KINDS, kind_of, split_kind
from capelet.reports.formatting import sentence_of
from capelet.reports.kinds.attribute_inference import AttributeInference, overall, verdicts
from capelet.reports.kinds.authorship import Authorship
from capelet.reports.kinds.deviation import Deviation
from capelet.reports.kinds.extraction import Extraction
from capelet.reports.kinds.fairness import Fairness
from capelet.reports.kinds.generic import KindReport
from capelet.reports.kinds.inversion import Inversion
from capelet.reports.kinds.membership import Membership
from capelet.reports.kinds.person_inference import PersonInference
from capelet.reports.kinds.utility import Utility
from capelet.reports.verdict import Verdict

REPORTS: dict[str, type[KindReport]] = {
    "attribute-inference": AttributeInference,
    "person-inference": PersonInference,
    "inversion": Inversion,
    "authorship": Authorship,
    "membership": Membership,
    "extraction": Extraction,
    "utility": Utility,
    "fairness": Fairness,
    "deviation": Deviation,
}


def report_of(kind: str) -> KindReport:
    """The report of a kind; the generic one where it has none of its own."""
    record = kind_of(kind)
    return REPORTS.get(record.name, KindReport)(record)


def reports_of(*runs: Findings) -> list[KindReport]:
    """The reports of all kinds in these runs, in the order of `KINDS`, unknown kinds last."""
    names = dict.fromkeys(split_kind(row.kind)[0] for run in runs for row in run)
    order = [*(name for name in KINDS if name in names), *(n for n in names if n not in KINDS)]
    return [report_of(name) for name in order]


def all_verdicts(findings: Findings) -> list[Verdict]:
    """One verdict per attribute, then one for each other kind of attack."""
    return [verdict for report in reports_of(findings) for verdict in report.verdicts(findings)]


def summary(findings: Findings) -> str:
    """The whole run in one or two sentences, attributes first."""
    clauses = [
        report.clause(findings)
        for report in reports_of(findings)
        if not isinstance(report, AttributeInference)
    ]
    words = "; ".join(clause for clause in clauses if clause)
    if not words:
        return overall(findings)
    sentence = f"{sentence_of(words)}."
    return f"{overall(findings)} {sentence}" if verdicts(findings) else sentence
