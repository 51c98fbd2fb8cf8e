"""How each operator couples the labels of channels: rules that `operators.table` names, by kind of operator.

A rule ties the labels it must and returns the labels of the operator's value. What an operator is to geometry is in
`operators.readers`; the order in which rules run is `label_pass`.
"""
