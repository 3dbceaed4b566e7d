"""Releases: steps, the recipe that orders them, learnt maps, and files of any size."""

from capelet.release.recipe import PrivateEncoder, Release, encode, is_private_encoder, recipe_hash

__all__ = ["PrivateEncoder", "Release", "encode", "is_private_encoder", "recipe_hash"]
