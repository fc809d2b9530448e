"""Programs for other interpreters.  They are alone in this folder, which is the first place where they import from."""
