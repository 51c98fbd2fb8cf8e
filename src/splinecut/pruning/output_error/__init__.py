"""Which units to remove, by what the network's output loses: the criterion behind `form="output"`, the default.

Here: the divergence of outputs (`divergence`), candidates that cut one group and refit its readers (`candidates`),
their measured cost (`measure`), how costs of groups become scores within a budget (`allocation`), and the search over
rounds (`search`). Not here: the refit itself (`pruning.refit`), and how a ticket is applied (`pruning.apply`).
"""
