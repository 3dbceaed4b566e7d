"""Findings: what a measurement says, of which kind it is, and how its score is computed."""

from capelet.findings.finding import SCHEMA, Finding, Findings

__all__ = ["SCHEMA", "Finding", "Findings"]
