"""The embedded sample: invented reviews with a known optimum for every attacker."""

from capelet.data.reviews.sample import Optimum, Reviews, generate, optimum, posterior

__all__ = ["Optimum", "Reviews", "generate", "optimum", "posterior"]
