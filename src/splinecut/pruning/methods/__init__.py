"""The pruning methods, one module or package each; `catalogue` names them."""
