"""What each aten operator is to geometry: affine, a fold, a maximum."""
