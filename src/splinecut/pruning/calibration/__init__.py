"""A cut network that imitates its dense original on unlabelled inputs, for a few hundred steps: `sc.calibrate`.

Here: the call itself (`run`) and its `steps`, what is compared between the two networks (`imitation`), which
`parameters` learn, how inputs are varied (`augmentation`) and what an interrupted call leaves on disk (`saved_state`).
Not here: training with labels (`training`), and refits in closed form, which take no steps (`pruning.refit`).
"""
