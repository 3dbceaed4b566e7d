"""Workflows: one function per command that measures or trains."""
