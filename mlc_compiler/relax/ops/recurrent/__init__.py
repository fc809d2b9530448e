"""Recurrent operators over the tokens of sequences, with a state for each sequence; one file for each kind.

Sizes: n tokens per call, L layers in the state. A state array is [slots, L, ...]. ``slots``, int32
[sequences], is the slot of each sequence; ``token_seq`` and ``token_pos``, int32 [n], are the sequence of each token
and its position in it. Tokens of a sequence are in order; tokens of several sequences may be interleaved. A token at a
negative position is padding; neither it nor a token whose sequence or slot is out of range changes a state, and their
results are 0.
"""
