"""GAL (Lin et al. 2019): soft masks trained against a discriminator until some are zero.

`method` is the method and its search for a strength, `adversary` the training hook, `soft_masks` the masked network and
the proximal step (FISTA).
"""
