"""From a recipe to a record: specs, plans, run folders, records and their summaries.

Belongs here: what turns a recipe into files and reads them back. Does not: methods and their engine (`pruning`),
printing (`cli`) or pages (`report`).
"""
