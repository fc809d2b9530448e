"""What both levels of the IR share: data types, integer and float expressions, traversal, equality."""
