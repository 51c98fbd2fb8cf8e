"""The algorithm behind `subdivide`: polygons, crossings, splits, run block by block over a traced network."""
