"""Generative adversarial learning of soft masks."""
