"""Channels that must be removed together: read from the exported program, verified, stored."""
