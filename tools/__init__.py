"""Programs for maintainers, not in the wheel: golden facts, tables in the documentation, the API reference.

Nothing in `splinecut` or `studies` imports them.
"""
