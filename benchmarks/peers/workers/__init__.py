"""One program for each engine, run in its environment: requests as JSON lines on stdin, answers on stdout."""
