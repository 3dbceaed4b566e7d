"""Capelet inside other libraries."""

from capelet.integrations.scikit_learn import Cape, Protector

__all__ = ["Cape", "Protector"]
