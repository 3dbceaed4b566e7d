"""The pure functions behind the kinds of a study: from a cell to its measurement."""
