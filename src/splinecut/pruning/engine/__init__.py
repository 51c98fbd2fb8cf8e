"""How a method is run: training, searching, cutting and retraining, resumable and with its cost charged.

`driver` is the algorithm, `context` what it runs with, `stages` what runs can share, `hooks` and `search_cache` what
it needs on the way, `schedules` how rounds are spaced. Belongs here: what all methods have in common. Does not: the
formula of a method (`pruning.methods`) or what a recipe says (`experiments`).
"""
