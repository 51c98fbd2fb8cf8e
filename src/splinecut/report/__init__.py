"""Records and stored partitions as one HTML page that opens offline; no model is ever loaded here."""
