"""Data: corpora, their readers, labels and splits."""
