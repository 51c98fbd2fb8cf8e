"""MetaPruning: a network that generates weights for any widths, and a search over widths."""
