"""Studies whose result is a picture."""
