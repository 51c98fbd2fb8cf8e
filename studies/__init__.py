"""Side experiments: each is one module that runs by itself and writes one result."""
