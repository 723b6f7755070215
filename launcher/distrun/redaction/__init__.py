"""Texts without secrets and, if wished, without the names of users and hosts.

The same name or secret gets the same replacement everywhere, so that a reader still sees what
belongs together. What a secret is can only be guessed: it is the value of a variable that
`program.pass_env` names or whose name looks secret, or a text that has the form of one.
"""
