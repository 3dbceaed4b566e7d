"""Privacy as mathematics: guarantees, their accounting, and which texts they are about."""
