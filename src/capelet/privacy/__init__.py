"""Privacy as data: guarantees, their accounting, and the store of charges."""
