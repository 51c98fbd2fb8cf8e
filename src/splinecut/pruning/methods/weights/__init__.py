"""Methods that remove single weights: the network keeps its shape, and a mask holds removed weights at zero.

Here are scores, allocations to layers and moving masks. The mask itself, and the hook that holds it in training, are in
`pruning.weight_mask`.
"""
