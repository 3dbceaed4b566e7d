"""Noise with a proof."""
