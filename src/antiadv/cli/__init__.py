"""The command line. Each command parses its options, calls one function of the library, and prints the result."""
