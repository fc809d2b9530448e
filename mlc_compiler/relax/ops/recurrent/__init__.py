"""Recurrences over the tokens of sequences, with a state for each sequence: one file for each kind.

Sizes: n tokens of the call, L layers that share the state. A state array is [slots, L, ...]. ``slots``, int32
[sequences], has the slot of each sequence; ``token_seq`` and ``token_pos``, int32 [n], are the sequence of each token
and its position there. Tokens of a sequence are in order; those of several sequences may be mixed. A token at a
negative position is padding; neither it nor a token whose sequence or slot is out of range changes a state, and their
results are 0.
"""
