"""Membership: was this text, or this window of words, in what a model was trained on?"""
