"""Text form of the IR: printer, parser, verifier; the names ``I``, ``T``, ``R`` for decorated Python source."""
