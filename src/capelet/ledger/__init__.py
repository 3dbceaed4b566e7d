"""The store of charges and releases: what each person has spent, and what was drawn for it."""
