"""Attacks: what can be read off a release, by whom and how well."""
