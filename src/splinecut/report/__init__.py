"""Records and stored partitions as one HTML page that opens offline.

Rows, tables and the packing of arrays belong here, the page's scripts in `page/`. It reads files and never loads a
model; numbers over seeds come from `experiments.summaries`.
"""
