"""Experiments behind the figures and claims in the documentation, one module per question; not in the wheel.

Run as `python -m studies.headline`; each writes one result to `results/`. Code that users need belongs in
`splinecut`, code that several studies need in `studies.support`.
"""
