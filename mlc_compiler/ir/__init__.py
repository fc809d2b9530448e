"""Parts shared by both levels of the IR: data types, scalar expressions, traversal, structural equality."""
