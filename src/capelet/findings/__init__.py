"""Findings: what a measurement says, of which kind it is, and how its score is computed."""

from capelet.findings.documents import SCHEMA
from capelet.findings.finding import Finding, Findings

__all__ = ["SCHEMA", "Finding", "Findings"]
